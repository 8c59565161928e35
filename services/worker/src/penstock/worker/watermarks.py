"""The watermark of several streams together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from penstock.worker.signals import START_OF_TIME, Watermark

K = TypeVar("K", bound=Hashable)


class Watermarks(Generic[K]):
    """The least watermark of the streams that are neither idle nor ended; without such, when nobody holds it back, the
    highest of all. It never goes back, also when a stream that was idle comes back behind it."""

    def __init__(self, streams: Iterable[K] = ()) -> None:
        self._at = dict.fromkeys(streams, START_OF_TIME)
        self._idle: set[K] = set()
        self._reached = self._highest = START_OF_TIME
        self._told_idle = False
        self._all_ended = False
        self.at = START_OF_TIME
        """The highest that was told."""

    def __len__(self) -> int:
        return len(self._at)

    def add(self, stream: K) -> None:
        """One more stream, which holds the others back until it has a watermark."""
        self._at[stream] = START_OF_TIME

    def of(self, stream: K) -> int:
        """The watermark of one stream."""
        return self._at.get(stream, START_OF_TIME)

    def is_idle(self, stream: K) -> bool:
        return stream in self._idle

    def advance(self, stream: K, at: int) -> None:
        """A stream has a watermark; one that was idle counts again."""
        self._idle.discard(stream)
        self._at[stream] = max(at, self.of(stream))
        self._highest = max(at, self._highest)
        self._reach()

    def idle(self, stream: K) -> None:
        """A stream counts no more until it advances."""
        self._idle.add(stream)
        self._reach()

    def end(self, stream: K) -> None:
        """A stream counts no more."""
        self._idle.discard(stream)
        self._at.pop(stream, None)
        self._all_ended = not self._at
        self._reach()

    def turn(self) -> Watermark | None:
        """What those who follow must be told next; None when they know all."""
        if self._reached > self.at:
            self.at, self._told_idle = self._reached, False
            return Watermark(self.at)
        # When all have ended, the end follows: idle would let others go on without what an operator still holds.
        all_idle = len(self._idle) == len(self._at) and not self._all_ended
        if all_idle == self._told_idle:
            return None
        self._told_idle = all_idle
        return Watermark(None if all_idle else self.at)

    def _reach(self) -> None:
        """At every move, for what was reached between two turns counts too."""
        counting = [at for stream, at in self._at.items() if stream not in self._idle]
        self._reached = max(self._reached, min(counting, default=self._highest))
