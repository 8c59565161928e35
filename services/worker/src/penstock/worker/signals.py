"""What travels in a channel besides rows, in order with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

START_OF_TIME: Final = -(2**63)
"""The watermark of a stream that has none yet."""
END_OF_TIME: Final = 2**63 - 1
"""The watermark behind the last row of a stream that is complete: it closes everything."""


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No more rows. Of a stream that was stopped, and so is not complete, no open window is closed."""

    complete: bool = True


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row that follows is of this event time (microseconds since 1970) or before it, but for late ones.

    None: the stream is idle, and holds nobody back until the next watermark, which may be the same as the last."""

    at: int | None


@dataclass(frozen=True, slots=True)
class Pause:
    """No more rows for now: what a sink holds back can be made visible. It stays inside a subtask."""


@dataclass(frozen=True, slots=True)
class FromPartition:
    """The rows that follow are of this partition of the source. It stays inside a subtask, as do the next two."""

    partition: int


@dataclass(frozen=True, slots=True)
class PartitionIdle:
    """A partition has been silent for so long that it holds no watermark back until it gives a row."""

    partition: int


@dataclass(frozen=True, slots=True)
class PartitionEnded:
    """A partition has no more rows."""

    partition: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """What came before it belongs to a checkpoint, what follows does not. It may follow the end of data; nothing
    follows the last one."""

    epoch: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class Positions:
    """How far the source has given its partitions away, by name; a barrier follows. It stays inside a subtask."""

    values: Mapping[str, bytes]


PartitionSignal: TypeAlias = FromPartition | PartitionIdle | PartitionEnded
Signal: TypeAlias = EndOfData | Watermark | Barrier | Pause | Positions | PartitionSignal
