"""What an engine has said of queries: the same query is asked about when it is validated, created and recovered."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from penstock.spark.wire import Frame

_MOST_BYTES: Final = 16 * 2**20


class Answers:
    """Answers by their requests; those that were not asked for in the longest time make room for others."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[bytes, Frame] = OrderedDict()

    def get(self, request: bytes) -> Frame | None:
        """The answer, if it is known."""
        frame = self._known.get(request)
        if frame is not None:
            self._known.move_to_end(request)
        return frame

    def keep(self, request: bytes, frame: Frame) -> None:
        """Remembers an answer."""
        if request not in self._known:
            self._known[request] = frame
            self._bytes += _size(request, frame)
        while self._bytes > self._most_bytes:
            self._bytes -= _size(*self._known.popitem(last=False))

    def clear(self) -> None:
        """Forgets all: SQL may mean something else from now on."""
        self._known.clear()
        self._bytes = 0


def _size(request: bytes, frame: Frame) -> int:
    return len(request) + int(frame.payload.size)
