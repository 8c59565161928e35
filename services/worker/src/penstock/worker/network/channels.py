"""The two ends of a channel between workers: one in place of a local channel, one that feeds an inbox."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import pyarrow as pa

from penstock.common.errors import PenstockError, UserError
from penstock.worker.channels import Channel, Inbox, Item
from penstock.worker.network.codec import RowsDecoder
from penstock.worker.network.counters import NetworkCounters
from penstock.worker.network.credits import Allowance, Credit
from penstock.worker.network.frames import BadFrame, Frame, Route
from penstock.worker.signals import Barrier, EndOfData


class Outward(Protocol):
    """Takes what is to be sent, however long it has to wait."""

    def put(self, route: Route, item: Item) -> None: ...

    def block(self, route: Route) -> None: ...


class Inward(Protocol):
    """Takes what is to be told to the sender of a channel."""

    def grant(self, route: Route, taken: int, bound: int) -> None: ...


class RemoteChannel:
    """The sender's end: to a subtask it is a channel as any other."""

    def __init__(self, route: Route, outward: Outward, counters: NetworkCounters, max_frame_bytes: int) -> None:
        self.route = route
        self._outward = outward
        self._counters = counters
        # What is around the columns of a batch, and its schema, need some room too.
        self._max_bytes = max_frame_bytes // 2
        self._credit = Credit()
        self._granted: asyncio.Future[None] | None = None

    def offer(self, item: Item) -> bool:
        """Sends an item when it has credit; a signal needs none."""
        if isinstance(item, pa.RecordBatch) and not self._may_send(item):
            return False
        self._outward.put(self.route, item)
        return True

    async def send(self, item: Item) -> None:
        """Sends an item as soon as it has credit. Cancelled, it has not sent it as a whole."""
        while not self.offer(item):
            if isinstance(item, pa.RecordBatch) and self._is_large(item):
                await self._send_halves(item)
                return
            self._granted = asyncio.get_running_loop().create_future()
            self._outward.block(self.route)
            started_at = time.monotonic()
            try:
                await self._granted
            finally:
                self._counters.blocked_seconds += time.monotonic() - started_at
                self._granted = None

    def grant(self, taken: int, bound: int) -> None:
        """The receiver has taken rows."""
        self._credit.grant(taken, bound)
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(None)

    def _may_send(self, batch: pa.RecordBatch) -> bool:
        return not self._is_large(batch) and self._credit.spend(batch.num_rows)

    def _is_large(self, batch: pa.RecordBatch) -> bool:
        # What a batch is of may be much larger than it, but is asked faster.
        return bool(batch.get_total_buffer_size() > self._max_bytes and batch.nbytes > self._max_bytes)

    async def _send_halves(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 1:
            raise UserError(
                f"a row of {batch.nbytes} bytes is too large to be sent to another worker",
                hint="set worker.data_max_frame to more than twice as much for all workers",
            )
        half = batch.num_rows // 2
        await self.send(batch.slice(0, half))
        await self.send(batch.slice(half))


class Incoming:
    """The receiver's end. It never waits: whoever sends more than was granted is wrong."""

    def __init__(self, route: Route, inbox: Inbox, bound: int, inward: Inward) -> None:
        self.route = route
        self._inward = inward
        self._allowance = Allowance(bound)
        self._decoder = RowsDecoder()
        self._inbox = inbox
        self._channel: Channel = inbox.channel(bound, self._taken)
        self._is_blocked = False
        self.is_over = False
        """Whether the stream has ended, or its last checkpoint has begun."""

    def begin(self) -> None:
        """Grants the first rows."""
        self._inward.grant(self.route, 0, self._allowance.bound)

    def rows(self, frame: Frame) -> None:
        """A frame of rows has come; raises BadFrame."""
        self._allowance.receive(frame.rows)
        if not self._channel.offer(self._decoder.decode(frame)):
            raise BadFrame(f"{frame.rows} rows came for a channel that is full")

    def signal(self, signal: Item) -> None:
        self._channel.offer(signal)
        self.is_over |= isinstance(signal, EndOfData) or (isinstance(signal, Barrier) and signal.last)

    def block(self) -> None:
        """The sender waits: nobody should wait for more of it."""
        self._allowance.await_grant()
        if not self._is_blocked:
            self._is_blocked = True
            self._inbox.sender_blocked(+1)

    def _taken(self, rows: int) -> None:
        taken = self._allowance.take(rows)
        if taken is None:
            return
        if self._is_blocked:
            self._is_blocked = False
            self._inbox.sender_blocked(-1)
        self._inward.grant(self.route, taken, self._allowance.bound)


class PeerFailed(Exception):
    """Another worker of the job has failed, and why."""

    def __init__(self, node: int, subtask: int, error: PenstockError) -> None:
        super().__init__(str(error))
        self.node = node
        self.subtask = subtask
        self.error = error
