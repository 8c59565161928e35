"""One TCP connection as a pair of frame streams, before and after the two sides know each other."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from penstock.common.errors import PeerUnavailable, PenstockError
from penstock.worker.network.codec import Chunk
from penstock.worker.network.counters import NetworkCounters
from penstock.worker.network.frames import HANDSHAKE, BadFrame, Frame, FrameReader, FrameType

_HIGH_BYTES: Final = 4 << 20
_LOW_BYTES: Final = 1 << 20
_MAX_EARLY_FRAMES: Final = 8
_PROBES: Final = 3
"""A peer that is silent for a quarter of its time is asked, again after each further quarter, and then is lost."""
_STREAM: Final = frozenset(FrameType) - HANDSHAKE


class Handler(Protocol):
    """Whoever has the connection."""

    def take_frame(self, frame: Frame) -> None: ...

    def writable(self) -> None:
        """What was held back can be written."""
        ...

    def lost(self, error: PenstockError) -> None:
        """The connection is over, from either side."""
        ...


class Link(asyncio.BufferedProtocol):
    """A connection. Until a handler has it, it takes a few frames of the handshake only, for `next_frame`."""

    def __init__(self, max_frame_bytes: int, silence_seconds: float) -> None:
        self._silence_seconds = silence_seconds
        self.counters = NetworkCounters()
        self._reader = FrameReader(max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._handler: Handler | None = None
        self._early: deque[Frame] = deque()
        self._arrival = asyncio.Event()
        self._paused = False
        self._error: PenstockError | None = None
        self.made = asyncio.Event()
        self.closed = asyncio.Event()

    @property
    def peername(self) -> str:
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return ":".join(map(str, name[:2])) if name else "an unknown address"

    @property
    def is_writable(self) -> bool:
        return not self._paused and self._error is None and self._transport is not None

    def start(self, handler: Handler, counters: NetworkCounters) -> None:
        """Gives a connection, whose sides know each other, to its handler."""
        self.counters = counters
        self._handler = handler
        self._reader.allowed = _STREAM
        try:
            while self._early:
                handler.take_frame(self._early.popleft())
        except PenstockError as error:
            self.abort(error)
        if self._error is not None:
            handler.lost(self._error)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def next_frame(self) -> Frame:
        """The next frame of the handshake; raises why there is none."""
        while not self._early:
            if self._error is not None:
                raise self._error
            self._arrival.clear()
            await self._arrival.wait()
        return self._early.popleft()

    def write(self, chunks: Sequence[Chunk], frames: int = 1, size: int | None = None) -> None:
        """Writes frames in one go; their size in bytes need not be counted if it is known."""
        if self._transport is None or self._transport.is_closing():
            return
        self.counters.frames_out += frames
        self.counters.bytes_out += sum(map(len, chunks)) if size is None else size
        if len(chunks) == 1:
            self._transport.write(chunks[0])
        else:
            self._transport.writelines(chunks)

    def close(self) -> None:
        """Closes it once everything is written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, error: PenstockError | None = None) -> None:
        """Ends it at once."""
        self._end(error or PeerUnavailable("the connection was closed"))
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_BYTES, low=_LOW_BYTES)
        if (connection := transport.get_extra_info("socket")) is not None:
            _tune(connection, self._silence_seconds)
        self.made.set()

    def get_buffer(self, sizehint: int) -> Any:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        self.counters.bytes_in += nbytes
        try:
            for frame in self._reader.received(nbytes):
                self.counters.frames_in += 1
                self._take(frame)
                if self._error is not None:
                    return
        except PenstockError as error:
            self.abort(error)

    def eof_received(self) -> None:
        if not self._reader.is_between_frames:
            self.abort(BadFrame("the connection ended in the middle of a frame"))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the other side closed it" if exc is None else str(exc) or type(exc).__name__
        self._end(PeerUnavailable(f"the connection was lost: {reason}"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._handler is not None:
            self._handler.writable()

    def _take(self, frame: Frame) -> None:
        if self._handler is not None:
            self._handler.take_frame(frame)
            return
        if len(self._early) == _MAX_EARLY_FRAMES and frame.type in HANDSHAKE:
            raise BadFrame("more frames than a handshake has")
        self._early.append(frame)
        if frame.type is FrameType.WELCOME and self._transport is not None:  # what follows is for the handler
            self._reader.allowed = _STREAM
            self._transport.pause_reading()
        self._arrival.set()

    def _end(self, error: PenstockError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._arrival.set()
        self.closed.set()
        if self._handler is not None:
            self._handler.lost(error)


def _tune(connection: socket.socket, silence_seconds: float) -> None:
    """No delay, and an end to peers that are gone without a word. Buffers are left to the system, which makes them
    larger than it lets anybody ask for."""
    quarter = int(silence_seconds / (_PROBES + 1))
    options = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", quarter),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", quarter),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", _PROBES),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", int(silence_seconds * 1000)),
    ]
    for level, name, value in options:
        if hasattr(socket, name):
            connection.setsockopt(level, getattr(socket, name), value)
