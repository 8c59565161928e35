"""How far the subtasks of one source are in event time, so that none runs far ahead of the slowest."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.worker.signals import Watermark
from penstock.worker.watermarks import Watermarks


class Alignment:
    """The subtasks of one source in this worker. Without a drift none waits for another."""

    def __init__(self, subtasks: Iterable[int], drift_us: int | None) -> None:
        self._watermarks = Watermarks(subtasks)
        self._drift_us = drift_us
        self._listeners: list[Callable[[], None]] = []

    @property
    def watermark(self) -> int:
        """What the slowest has reached, of those that are neither idle nor ended."""
        return self._watermarks.at

    @property
    def limit(self) -> int | None:
        """Whoever is beyond this event time waits."""
        return None if self._drift_us is None else self._watermarks.at + self._drift_us

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls somebody whenever the limit has moved."""
        if self._drift_us is not None:
            self._listeners.append(listener)

    def tell(self, subtask: int, watermark: Watermark) -> None:
        """A subtask has a new watermark, or is idle."""
        if watermark.at is None:
            self._watermarks.idle(subtask)
        else:
            self._watermarks.advance(subtask, watermark.at)
        self._turn()

    def leave(self, subtask: int) -> None:
        """A subtask has ended."""
        self._watermarks.end(subtask)
        self._turn()

    def _turn(self) -> None:
        while self._watermarks.turn() is not None:
            for listener in self._listeners:
                listener()
