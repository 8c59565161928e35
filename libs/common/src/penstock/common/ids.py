"""Ids: each kind its own type, told apart by prefix and ordered by the time they were made.

An id is its prefix and 26 characters of lowercase Crockford base32: 48 bits of milliseconds, then 80 random bits.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import ClassVar, NewType, Self

from penstock.common.errors import InvalidId

Epoch = NewType("Epoch", int)
Generation = NewType("Generation", int)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 26
_RANDOM_BITS = 80
# 26 characters hold 130 bits and an id has 128, so that the first is 7 at most.
_BODY = re.compile(rf"[0-7][{_ALPHABET}]{{{_LENGTH - 1}}}")


def system_clock_ms() -> int:
    """Milliseconds since 1970, from the system's clock."""
    return time.time_ns() // 1_000_000


class IdSource:
    """Hands out 128-bit numbers that only grow, even within a millisecond or when the clock steps back."""

    def __init__(self, clock_ms: Callable[[], int] = system_clock_ms) -> None:
        self._clock_ms = clock_ms
        self.reset()

    def reset(self) -> None:
        """Forget the last number and the lock: a forked child would else continue its parent's sequence."""
        self._lock = threading.Lock()
        self._last = -1

    def next(self) -> int:
        fresh = self._clock_ms() << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        with self._lock:
            self._last = max(fresh, self._last + 1)
            return self._last


PROCESS_IDS = IdSource()
os.register_at_fork(after_in_child=PROCESS_IDS.reset)


class Id(str):
    """The text of an id; making one of text that is not its kind raises `InvalidId`."""

    __slots__ = ()
    prefix: ClassVar[str]
    kind: ClassVar[str]

    def __new__(cls, text: str) -> Self:
        if not text.startswith(cls.prefix) or _BODY.fullmatch(text, len(cls.prefix)) is None:
            raise InvalidId(
                f"{text!r} is not a {cls.kind} id",
                hint=f"a {cls.kind} id is {cls.prefix!r} and {_LENGTH} lowercase letters and digits",
            )
        return super().__new__(cls, text)

    @classmethod
    def new(cls, source: IdSource = PROCESS_IDS) -> Self:
        """A new id, greater than every id made before from the same source."""
        return cls(cls.prefix + _encode(source.next()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id that a text spells."""
        return cls(text)


class PipelineId(Id):
    __slots__ = ()
    prefix = "pl_"
    kind = "pipeline"


class JobId(Id):
    __slots__ = ()
    prefix = "job_"
    kind = "job"


class CheckpointId(Id):
    __slots__ = ()
    prefix = "cp_"
    kind = "checkpoint"


class UdfId(Id):
    __slots__ = ()
    prefix = "udf_"
    kind = "udf"


class ConnectionTableId(Id):
    __slots__ = ()
    prefix = "ct_"
    kind = "connection table"


class ConnectionProfileId(Id):
    __slots__ = ()
    prefix = "cn_"
    kind = "connection profile"


class SavepointId(Id):
    __slots__ = ()
    prefix = "sv_"
    kind = "savepoint"


class WorkerId(Id):
    __slots__ = ()
    prefix = "wk_"
    kind = "worker"


class NodeId(Id):
    __slots__ = ()
    prefix = "nd_"
    kind = "node"


def _encode(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))
