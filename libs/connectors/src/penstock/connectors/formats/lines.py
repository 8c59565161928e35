"""Lines in a block of bytes: where each begins and ends, and which ones a fast JSON reader must not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")
_NOT_JSON: Final = (b"NaN", b"Inf")


@dataclass(frozen=True, slots=True)
class Lines:
    """A block's lines, without their line ends; some may be empty."""

    data: bytes
    starts: Positions
    ends: Positions

    @classmethod
    def split(cls, data: bytes) -> Lines:
        """The lines of a block; the last one need not end in a newline."""
        content = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(content == NEWLINE)
        if len(content) and content[-1] != NEWLINE:
            ends = np.append(ends, len(content))
        starts = np.zeros(len(ends), np.int64)
        starts[1:] = ends[:-1] + 1
        returns = (ends > starts) & (content[np.maximum(ends - 1, 0)] == _RETURN) if len(ends) else False
        return cls(data, starts, ends - returns)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]

    def filled(self) -> Mask:
        """Which lines hold anything."""
        return self.ends > self.starts

    def lengths(self) -> Positions:
        return self.ends - self.starts

    def odd(self) -> Mask:
        """Which lines a lenient reader could take for something else than the one JSON object that a line is.

        What is not `{…}` could join with its neighbours, or crash the reader; what is not UTF-8 or has a NaN in it
        could be taken for JSON. A line that is odd may still be right: it has to be looked at alone.
        """
        if not len(self):
            return np.zeros(0, np.bool_)
        content = np.frombuffer(self.data, np.uint8)
        first = content[np.minimum(self.starts, len(content) - 1)]
        last = content[np.maximum(self.ends - 1, 0)]
        odd: Mask = self.filled() & ((first != ord("{")) | (last != ord("}")))
        for token in _NOT_JSON:
            odd[self._lines_at(_occurrences(content, token))] = True
        if not _is_utf8(self.data):
            for index in np.unique(self._lines_at(np.flatnonzero(content >= 128))):
                odd[index] |= not _is_utf8(self[index])
        return odd

    def join(self, indexes: Positions) -> bytes:
        """Those lines as a block of their own; no copy when they are neighbours."""
        if not len(indexes):
            return b""
        if indexes[-1] - indexes[0] + 1 == len(indexes):
            return self._run(int(indexes[0]), int(indexes[-1]))
        breaks = np.flatnonzero(np.diff(indexes) > 1)
        firsts, lasts = np.append(indexes[:1], indexes[breaks + 1]), np.append(indexes[breaks], indexes[-1:])
        return b"\n".join(self._run(*run) for run in zip(firsts.tolist(), lasts.tolist(), strict=True))

    def _run(self, first: int, last: int) -> bytes:
        start, end = self.starts[first], self.ends[last]
        return self.data if start == 0 and end >= len(self.data) - 1 else self.data[start:end]

    def _lines_at(self, positions: Positions) -> Positions:
        return np.searchsorted(self.starts, positions, side="right") - 1


def _occurrences(content: npt.NDArray[np.uint8], token: bytes) -> Positions:
    """Where a short token is; some times faster than a search in bytes, and does not hold the interpreter's lock."""
    found = np.flatnonzero(content[: len(content) - len(token) + 1] == token[0])
    for offset, byte in enumerate(token[1:], start=1):
        found = found[content[found + offset] == byte]
    return found


def _is_utf8(data: bytes) -> bool:
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
