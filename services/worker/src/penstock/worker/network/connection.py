"""The channels between this worker and another one, over the one connection that they have."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

import pyarrow as pa
import structlog

from penstock.common.errors import PeerUnavailable, PenstockError
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.common.rpc_errors import decode_error, encode_error
from penstock.worker.channels import Inbox, Item
from penstock.worker.network.channels import Incoming, PeerFailed, RemoteChannel
from penstock.worker.network.codec import (
    Chunk,
    Compression,
    RowsEncoder,
    decode_grant,
    decode_signal,
    encode_grant,
    encode_signal,
)
from penstock.worker.network.counters import NetworkCounters
from penstock.worker.network.frames import BadFrame, Frame, FrameType, Route, encode_frame
from penstock.worker.network.link import Link
from penstock.worker.network.outbox import Outbox

_WRITE_BYTES: Final = 1 << 20
_STOPPED_GRACE_SECONDS: Final = 10.0
"""Whoever was stopped is usually not the only one: the others are given time to hear of it."""

_Channel = TypeVar("_Channel", RemoteChannel, Incoming)

log = structlog.get_logger(__name__)


class Connection:
    """All channels with one worker. They can be used before it is connected: what is put in then waits."""

    def __init__(
        self, worker: WorkerId, counters: NetworkCounters, max_frame_bytes: int, compression: Compression
    ) -> None:
        self.worker = worker
        self._counters = counters
        self._max_frame_bytes = max_frame_bytes
        self._compression: Compression = compression
        self._senders: dict[Route, RemoteChannel] = {}
        self._encoders: dict[Route, RowsEncoder] = {}
        self._receivers: dict[Route, Incoming] = {}
        self._outbox = Outbox()
        self._link: Link | None = None
        self._attached = asyncio.Event()
        self._flush_is_due = False
        self._farewell: bytes | None = None  # to be written when nothing is ahead of it
        self._said_goodbye = self._peer_finished = self._peer_stopped = False
        self._error: Exception | None = None
        self._failed = asyncio.Event()

    def sender(self, route: Route) -> RemoteChannel:
        """A channel to the other worker."""
        channel = RemoteChannel(route, self, self._counters, self._max_frame_bytes)
        self._senders[route] = channel
        self._encoders[route] = RowsEncoder(self._compression)
        return channel

    def receive(self, route: Route, inbox: Inbox, bound: int) -> None:
        """A channel from the other worker into an inbox."""
        self._receivers[route] = Incoming(route, inbox, bound, self)

    def attach(self, link: Link) -> None:
        """Uses a connection from now on."""
        self._link = link
        for incoming in self._receivers.values():
            incoming.begin()
        link.start(self, self._counters)
        self._attached.set()
        self._flush()

    @property
    def is_attached(self) -> bool:
        return self._attached.is_set()

    async def failed(self) -> None:
        """Waits until the channels can no longer be used; raises why."""
        await self._failed.wait()
        if self._error is not None:
            raise self._error

    # what the channels ask for

    def put(self, route: Route, item: Item) -> None:
        if self._peer_finished and isinstance(item, pa.RecordBatch):
            raise PeerUnavailable(f"worker {self.worker} takes no more rows")
        if not self._said_goodbye and not self._peer_stopped:
            self._outbox.put(route, item)
            self._plan_flush()

    def block(self, route: Route) -> None:
        self._outbox.block(route)
        self._plan_flush()

    def grant(self, route: Route, taken: int, bound: int) -> None:
        if not self._said_goodbye and not self._peer_stopped:
            self._outbox.grant(route, taken, bound)
            self._plan_flush()

    # what the other worker says

    def take_frame(self, frame: Frame) -> None:
        match frame.type:
            case FrameType.ROWS:
                self._receiver(frame).rows(frame)
            case FrameType.GRANT:
                self._sender(frame).grant(*decode_grant(frame))
            case FrameType.WAITING:
                self._receiver(frame).block()
            case FrameType.WATERMARK | FrameType.BARRIER | FrameType.END:
                self._receiver(frame).signal(decode_signal(frame))
            case FrameType.FINISHED:
                self._finished()
            case FrameType.FAILED:
                error = decode_error(bytes(frame.payload))
                self._fail(PeerFailed(frame.route.source_node, frame.route.source, error))
                self._close()
            case FrameType.STOPPED:
                self._peer_stopped = True
                self._close()
                error = PeerUnavailable(f"worker {self.worker} was stopped")
                asyncio.get_running_loop().call_later(_STOPPED_GRACE_SECONDS, self._fail, error)
            case _:
                raise BadFrame(f"a frame of type {frame.type.name} is out of turn")

    def writable(self) -> None:
        self._flush()

    def lost(self, error: PenstockError) -> None:
        if isinstance(error, BadFrame):
            log.warning(LogEvent.CONNECTION_REFUSED, worker=self.worker, reason=str(error))
        if not self._said_goodbye and not self._peer_stopped:
            self._fail(PeerUnavailable(f"the connection with worker {self.worker} broke: {error.message}"))

    # the end

    async def finish(self) -> None:
        """Says that all is done, once everything is written, and waits until the other worker has heard it."""
        await self._attached.wait()
        assert self._link is not None
        self._say_goodbye(encode_frame(FrameType.FINISHED))
        await self._link.closed.wait()

    async def end(self, failure: tuple[Route, PenstockError] | None) -> None:
        """Says that this worker has failed or was stopped, and waits until the other one has heard it."""
        if self._link is None:
            return
        self._outbox = Outbox()
        if failure is None:
            self._say_goodbye(encode_frame(FrameType.STOPPED))
        else:
            route, error = failure
            self._say_goodbye(encode_frame(FrameType.FAILED, encode_error(error), route))
        await self._link.closed.wait()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._said_goodbye = True
        if self._link is not None:
            self._link.abort()

    def _say_goodbye(self, frame: bytes) -> None:
        if not self._said_goodbye:
            self._said_goodbye = True
            self._farewell = frame
            self._flush()

    def _finished(self) -> None:
        if not all(incoming.is_over for incoming in self._receivers.values()):
            raise BadFrame("it has finished in the middle of a stream")
        self._peer_finished = True
        self._say_goodbye(encode_frame(FrameType.FINISHED))
        if self._farewell is None:
            self._close()

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()

    def _fail(self, error: Exception) -> None:
        if not self._failed.is_set():
            self._error = error
            self._failed.set()

    def _sender(self, frame: Frame) -> RemoteChannel:
        return _found(self._senders, frame)

    def _receiver(self, frame: Frame) -> Incoming:
        return _found(self._receivers, frame)

    # writing

    def _plan_flush(self) -> None:
        """What is put in by the same turn of the loop is written together."""
        if not self._flush_is_due and self._link is not None:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        while self._link is not None and self._outbox and self._link.is_writable:
            self._link.write(*self._next_chunks())
        if self._farewell is not None and self._link is not None and self._link.is_writable:
            self._link.write([self._farewell])
            self._farewell = None
            if self._peer_finished:
                self._close()

    def _next_chunks(self) -> tuple[list[Chunk], int, int]:
        """What is written next, how many frames that are, and of what size."""
        chunks: list[Chunk] = [encode_grant(route, *grant) for route, grant in self._outbox.take_grants().items()]
        chunks += [encode_frame(FrameType.WAITING, route=route) for route in self._outbox.take_blocked()]
        frames, size = len(chunks), sum(map(len, chunks))
        while size < _WRITE_BYTES and (waiting := self._outbox.take()) is not None:
            for item in waiting.items:
                frames += 1
                if isinstance(item, pa.RecordBatch):
                    rows, length = self._encoders[waiting.route].encode(waiting.route, item)
                    chunks += rows
                    size += length
                else:
                    chunks.append(encode_signal(waiting.route, item))
                    size += len(chunks[-1])
        return chunks, frames, size


def _found(channels: dict[Route, _Channel], frame: Frame) -> _Channel:
    channel = channels.get(frame.route)
    if channel is None:
        raise BadFrame(f"there is no channel {frame.route} for a frame of type {frame.type.name}")
    return channel
