"""How long what nothing touches is kept, and by which time: that of events, or that of the worker's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""The time in microseconds since 1970. Checkpoints hold it, so that ages go on where another worker restores them."""


def system_clock() -> int:
    """The time of this machine."""
    return time.time_ns() // 1000


class SteadyClock:
    """A clock that stands still where another one goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = clock()

    def __call__(self) -> int:
        self._latest = max(self._latest, self._clock())
        return self._latest


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A time to live (0: for ever), by event time or, with a clock, by that."""

    us: int
    clock: Clock | None = None

    def moment(self, watermark: int | None = None) -> int | None:
        """How late it is; by event time nobody knows without a watermark."""
        return watermark if self.clock is None else self.clock()
