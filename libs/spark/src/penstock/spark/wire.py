"""Frames on the Unix socket between Python and the JVM: a 16-byte header (kind, slot, length), then the payload.

`jvm/Wire.scala` holds the other side. One connection serves one fragment or one decoder of lines,
one exchange at a time.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

FRAME_HEADER: Final = struct.Struct("<IIQ")
_SCRATCH_BYTES: Final = 1 << 18
SOCKET_BYTES: Final = 1 << 22  # the kernel takes as much of this as it allows


Sendable: TypeAlias = "pa.Buffer | bytes | memoryview"


class Kind(IntEnum):
    """What a frame is; `Wire.scala` says more."""

    PLAN = 1
    INPUT = 2
    BATCH = 3
    RUN = 4
    SCHEMA_OF = 5
    ATTACH = 6
    STATUS = 7
    CANCEL = 8
    EXPLAIN = 9
    FUNCTIONS = 10
    DECODE = 11
    LINES = 12
    FILE_LINES = 13
    ANALYSE_AGGREGATION = 14
    OBSERVE = 15
    USED = 21
    OUTPUT_SCHEMA = 16
    DONE = 17
    FAILED = 18
    INFO = 19
    ODD = 20


class Frame(NamedTuple):
    """A frame that was received."""

    kind: Kind
    slot: int
    payload: pa.Buffer

    def json(self) -> Any:
        """The payload of a frame that holds JSON."""
        content: dict[str, Any] = json.loads(self.payload.to_pybytes())
        return content


# What one system call takes; POSIX promises no more than 16, Linux takes 1024.
_MOST_BUFFERS: Final = 16


class Closed(ConnectionError):
    """The JVM closed the connection."""


class Wire:
    """One connection. Sending and receiving may go on at the same time; each by one task only."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._start = self._end = 0  # what of the scratch buffer is received and not yet read

    @classmethod
    async def connect(cls, path: str) -> Wire:
        """Opens a connection to the server at a socket's path."""
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        try:
            await asyncio.get_running_loop().sock_connect(connection, path)
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    def send_now(self, buffers: Sequence[Sendable]) -> Sequence[Sendable]:
        """Sends what fits without waiting, and returns the rest."""
        try:
            sent = self._socket.sendmsg(buffers[:_MOST_BUFFERS])
        except BlockingIOError:
            return buffers
        for index, buffer in enumerate(buffers):
            size = memoryview(buffer).nbytes
            if sent < size:
                return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
            sent -= size
        return ()

    async def send(self, buffers: Iterable[Sendable]) -> None:
        """Sends buffers one after the other, waiting where the socket is full."""
        loop = asyncio.get_running_loop()
        for buffer in buffers:
            await loop.sock_sendall(self._socket, buffer)

    async def receive(self) -> Frame:
        """The next frame."""
        await self._ensure(FRAME_HEADER.size)
        kind, slot, length = FRAME_HEADER.unpack_from(self._scratch, self._start)
        self._start += FRAME_HEADER.size
        return Frame(Kind(kind), slot, await self._payload(length))

    async def _payload(self, length: int) -> pa.Buffer:
        """A payload in memory of its own, which Arrow arrays may point into for as long as they live."""
        buffer = pa.allocate_buffer(length)
        view = memoryview(buffer).cast("B")
        held = min(self._end - self._start, length)
        view[:held] = self._scratch[self._start : self._start + held]
        self._start += held
        while held < length:
            held += await self._receive_into(view[held:])
        return buffer

    async def _ensure(self, size: int) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        while self._end - self._start < size:
            if self._end == len(self._scratch):  # a header is cut by the buffer's end
                rest = bytes(self._scratch[self._start : self._end])
                self._scratch[: len(rest)] = rest
                self._start, self._end = 0, len(rest)
            self._end += await self._receive_into(self._scratch[self._end :])

    async def _receive_into(self, view: memoryview) -> int:
        count = await asyncio.get_running_loop().sock_recv_into(self._socket, view)
        if count == 0:
            raise Closed("the JVM closed the connection")
        return count

    def shut(self) -> None:
        """Wakes whoever sends or receives, who then closes."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection, which ends the JVM's side of it."""
        self._socket.close()


def header(kind: Kind, slot: int = 0, length: int = 0) -> bytes:
    """A frame's first bytes."""
    return FRAME_HEADER.pack(kind, slot, length)


def json_frame(kind: Kind, content: object) -> bytes:
    """A frame that holds JSON."""
    payload = json.dumps(content).encode()
    return header(kind, 0, len(payload)) + payload
