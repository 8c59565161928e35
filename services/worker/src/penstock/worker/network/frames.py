"""What crosses a connection: frames of a header and a payload, out of bytes however those are cut."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.common.errors import ExternalError

# source node, source subtask, target node, target subtask, edge, type, flag, rows, length of the payload
_HEADER: Final = struct.Struct("<HHHHHBBIQ")
HEADER_BYTES: Final = _HEADER.size
_STAGING_BYTES: Final = 64 << 10
_LEAST_STAGING_BYTES: Final = 4 << 10


class BadFrame(ExternalError):
    """What has come is nothing that this protocol allows."""


class FrameType(IntEnum):
    """What a frame is."""

    CHALLENGE = 1  # of whoever was connected to
    HELLO = 2
    WELCOME = 3
    REFUSED = 4
    ROWS = 5  # messages of an Arrow stream: the schema at first, then dictionaries if there are any, and a batch
    WATERMARK = 6
    BARRIER = 7
    END = 8
    GRANT = 9  # from the receiver: how many rows of a channel it has taken in all; `rows` may be on their way
    WAITING = 10  # the sender could send more if it were granted
    FINISHED = 11  # everything has been sent and taken
    FAILED = 12
    STOPPED = 13


HANDSHAKE: Final = frozenset({FrameType.CHALLENGE, FrameType.HELLO, FrameType.WELCOME, FrameType.REFUSED})
_TYPES: Final = {type.value: type for type in FrameType}
_MAX_WORDS_BYTES: Final = 16 << 10
_MAX_BYTES: Final = {
    **dict.fromkeys(HANDSHAKE, 4 << 10),
    FrameType.WATERMARK: 8,
    FrameType.BARRIER: 8,
    FrameType.END: 0,
    FrameType.GRANT: 8,
    FrameType.WAITING: 0,
    FrameType.FINISHED: 0,
    FrameType.FAILED: _MAX_WORDS_BYTES,
    FrameType.STOPPED: 0,
}


class Route(NamedTuple):
    """From which subtask to which, by the places of their nodes in the program. The edge tells apart two channels of a
    table that is united with itself."""

    source_node: int = 0
    source: int = 0
    target_node: int = 0
    target: int = 0
    edge: int = 0


NO_ROUTE: Final = Route()


class Frame(NamedTuple):
    """One frame that has come."""

    type: FrameType
    route: Route
    flag: bool
    rows: int
    payload: pa.Buffer


def encode_header(type: FrameType, route: Route, length: int, *, flag: bool = False, rows: int = 0) -> bytes:
    """The header of a frame."""
    return _HEADER.pack(
        route.source_node, route.source, route.target_node, route.target, route.edge, type, flag, rows, length
    )


def encode_frame(
    type: FrameType, payload: bytes = b"", route: Route = NO_ROUTE, *, flag: bool = False, rows: int = 0
) -> bytes:
    """A small frame as a whole."""
    return encode_header(type, route, len(payload), flag=flag, rows=rows) + payload


class FrameReader:
    """Puts frames together. Small ones are read many at a time; a large payload straight into memory of its own."""

    def __init__(self, max_bytes: int, allowed: frozenset[FrameType] = HANDSHAKE) -> None:
        self.allowed = allowed
        """The types that may come now: others are refused by their header, before there is memory for them."""
        self._max_bytes = max_bytes
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._start = self._end = 0
        self._next_read = _STAGING_BYTES
        self._header: Frame | None = None
        self._length = 0
        self._large: memoryview | None = None
        self._filled = 0

    @property
    def is_between_frames(self) -> bool:
        return self._header is None and self._start == self._end

    def space(self) -> memoryview:
        """Where the next bytes go."""
        if self._large is not None:
            return self._large[self._filled :]
        if len(self._staging) - self._end < _LEAST_STAGING_BYTES:
            left = self._end - self._start
            self._staging[:left] = bytes(self._staging[self._start : self._end])
            self._start, self._end = 0, left
        return self._staging[self._end : self._end + self._next_read]

    def received(self, count: int) -> Iterator[Frame]:
        """The frames that are complete with so many more bytes; raises BadFrame. To be taken to its end."""
        if self._large is not None:
            self._filled += count
            if self._filled == self._length:
                yield self._complete()
            return
        self._end += count
        while True:
            if self._header is None:
                if self._end - self._start < HEADER_BYTES:
                    break
                self._header = self._parse()
            if self._length > self._end - self._start:
                if self._length > _STAGING_BYTES - _LEAST_STAGING_BYTES:
                    self._allocate()
                break
            yield self._from_staging()
        if self._start == self._end:
            self._start = self._end = 0

    def _parse(self) -> Frame:
        *places, number, flag, rows, length = _HEADER.unpack_from(self._staging, self._start)
        self._start += HEADER_BYTES
        type = _TYPES.get(number)
        if type is None:
            raise BadFrame(f"there is no frame of type {number}")
        if type not in self.allowed:
            raise BadFrame(f"a frame of type {type.name} is out of turn")
        if length > _MAX_BYTES.get(type, self._max_bytes):
            raise BadFrame(
                f"a frame of type {type.name} has {length} bytes, which is too many",
                hint="set worker.data_max_frame alike for all workers",
            )
        self._length = length
        source_node, source, target_node, target, edge = places
        return Frame(type, Route(source_node, source, target_node, target, edge), bool(flag), rows, _NOTHING)

    def _from_staging(self) -> Frame:
        header, end = self._header, self._start + self._length
        assert header is not None
        payload = pa.py_buffer(bytes(self._staging[self._start : end])) if self._length else _NOTHING
        self._start, self._header = end, None
        self._next_read = _STAGING_BYTES
        return Frame(header.type, header.route, header.flag, header.rows, payload)

    def _allocate(self) -> None:
        self._buffer = pa.allocate_buffer(self._length)
        self._large = memoryview(self._buffer).cast("B")
        self._filled = self._end - self._start
        self._large[: self._filled] = self._staging[self._start : self._end]
        self._start = self._end = 0

    def _complete(self) -> Frame:
        header, payload = self._header, self._buffer
        assert header is not None
        self._header = self._large = None
        del self._buffer
        # Another large one may follow, of which little should be copied.
        self._next_read = _LEAST_STAGING_BYTES
        return Frame(header.type, header.route, header.flag, header.rows, payload)


_NOTHING: Final = pa.py_buffer(b"")
