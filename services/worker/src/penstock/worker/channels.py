"""Channels between the stages of a job, bounded by rows: one sender each, any number into one inbox."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, assert_never

import pyarrow as pa

from penstock.worker.batches import Batches
from penstock.worker.signals import (
    Barrier,
    EndOfData,
    FromPartition,
    PartitionEnded,
    PartitionIdle,
    Pause,
    Positions,
    Signal,
    Watermark,
)
from penstock.worker.watermarks import Watermarks

Item: TypeAlias = pa.RecordBatch | Signal


class Channel:
    """One sender's way into an inbox. It holds at most `bound` rows, or a single batch that is larger. `taken` is told
    how many rows are taken out."""

    def __init__(self, inbox: Inbox, bound: int, taken: Callable[[int], None] | None = None) -> None:
        self._inbox = inbox
        self._bound = bound
        self._items: deque[Item] = deque()
        self._rows = 0
        self._room: asyncio.Future[None] | None = None
        self._taken = taken

    @property
    def rows(self) -> int:
        """The rows that wait in it."""
        return self._rows

    def offer(self, item: Item) -> bool:
        """Puts an item in when there is room; a signal takes none."""
        rows = _rows_of(item)
        if rows and self._rows and self._rows + rows > self._bound:
            return False
        if self._items and supersedes(item, self._items[-1]):
            while len(self._items) > 1 and supersedes(item, self._items[-2]):
                self._items.pop()
            self._items[-1] = item
            return True
        self._items.append(item)
        self._rows += rows
        self._inbox._arrived(self, item)
        return True

    async def send(self, item: Item) -> None:
        """Puts an item in as soon as there is room. Cancelled, it has put in nothing."""
        while not self.offer(item):
            self._room = asyncio.get_running_loop().create_future()
            self._inbox.sender_blocked(+1)
            try:
                await self._room
            finally:
                self._inbox.sender_blocked(-1)
                self._room = None

    def _head(self) -> Item:
        return self._items[0]

    def _pop(self) -> Item:
        item = self._items.popleft()
        rows = _rows_of(item)
        self._rows -= rows
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if rows and self._taken is not None:
            self._taken(rows)
        return item

    def __len__(self) -> int:
        return len(self._items)


class Inbox:
    """Where a receiver takes what its channels hold: from one after the other, so that none waits for another's end.

    The watermark that it gives is that of all channels together, after all rows that were ahead of it in any; rows
    that were behind it may come first, which does no harm."""

    def __init__(self) -> None:
        self._ready: deque[Channel] = deque()  # those that hold something, each once
        self._watermarks: Watermarks[Channel] = Watermarks()
        self._moved = False  # whether the watermark may have changed since it was given
        self._complete = True
        self._open = 0
        self._rows = 0
        self._signals = 0
        self._blocked_senders = 0
        self._arrival: asyncio.Future[None] | None = None
        self._channels = 0
        self._told_end = False
        self._behind_barrier: list[Channel] = []  # those that wait for the barrier in the others
        self._barrier: Barrier | None = None
        self.aligning_since: float | None = None
        """When, in seconds since 1970, the barrier came that was given last, or that the others are waited for."""

    def channel(self, bound: int, taken: Callable[[int], None] | None = None) -> Channel:
        """A new channel into this inbox."""
        self._open += 1
        self._channels += 1
        channel = Channel(self, bound, taken)
        self._watermarks.add(channel)
        return channel

    @property
    def rows(self) -> int:
        """The rows that wait in all channels."""
        return self._rows

    def take(self, rows: int) -> Batches | Signal | None:
        """What is there, without waiting: a watermark that is due, or else batches of together at most so many rows (or
        one that is larger), or else a signal, or else None. `EndOfData` is taken once, when all channels have ended,
        and a barrier when it has come in all of them: those that have it give nothing until then."""
        if (due := self._watermark()) is not None:
            return due
        taken: list[pa.RecordBatch] = []
        room = rows
        while self._ready:
            match item := self._ready[0]._head():
                case pa.RecordBatch():
                    if taken and item.num_rows > room:
                        break
                    taken.append(item)
                    room -= item.num_rows
                    self._pop()
                case Watermark(at):
                    self._move(self._pop(), at)
                case EndOfData(complete):
                    self._end(self._pop(), complete)
                case Barrier():
                    self._align(item)
                case Pause():
                    if len(self._ready[0]) == 1:
                        if taken:
                            break
                        self._pop()
                        return item
                    self._pop()  # rows have followed: the pause is over
                case FromPartition() | PartitionIdle() | PartitionEnded() | Positions():
                    if taken:
                        break
                    self._pop()
                    return item
                case _:
                    assert_never(item)
        if taken:
            return tuple(taken)
        return self._watermark() or self._ended() or self._aligned()

    async def wait(self) -> None:
        """Waits until `take` may have something to give."""
        while not self._ready and not self._is_aligned and (self._open or self._told_end):
            await self._next_arrival()

    async def gather(self, rows: int, until: float) -> None:
        """Waits until so many rows are there or no more can come without a `take`, at most until a time of the loop."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._rows < rows and not self._signals and not self._blocked_senders:
                    await self._next_arrival()

    def sender_blocked(self, change: int) -> None:
        """One more sender waits for room, or one less."""
        self._blocked_senders += change
        self._wake()

    async def _next_arrival(self) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _ended(self) -> EndOfData | None:
        if self._open or self._told_end:
            return None
        self._told_end = True
        return EndOfData(self._complete)

    @property
    def _is_aligned(self) -> bool:
        return self._barrier is not None and len(self._behind_barrier) == self._channels

    def _align(self, barrier: Barrier) -> None:
        """A channel has come to a barrier. One that not all sources heard of is given up when the next one comes."""
        if self._barrier is not None and barrier.epoch < self._barrier.epoch:
            self._pop()
            return
        channel = self._ready.popleft()
        self._count(channel._pop(), -1)
        if self._barrier is None or barrier.epoch > self._barrier.epoch:
            self._release()
            self._barrier, self.aligning_since = barrier, time.time()
        self._behind_barrier.append(channel)

    def _aligned(self) -> Barrier | None:
        if not self._is_aligned:
            return None
        barrier, self._barrier = self._barrier, None
        self._release()
        return barrier

    def _release(self) -> None:
        self._ready.extend(channel for channel in self._behind_barrier if len(channel))
        self._behind_barrier = []

    def _watermark(self) -> Watermark | None:
        turn = self._watermarks.turn() if self._moved and self._watermarks else None
        self._moved = turn is not None
        return turn

    def _move(self, channel: Channel, at: int | None) -> None:
        if at is None:
            self._watermarks.idle(channel)
        else:
            self._watermarks.advance(channel, at)
        self._moved = True

    def _end(self, channel: Channel, complete: bool) -> None:
        self._open -= 1
        self._complete &= complete
        if complete:  # else rows are missing, and the others must not close what those belong to
            self._watermarks.end(channel)
            self._moved = True

    def _pop(self) -> Channel:
        channel = self._ready.popleft()
        self._count(channel._pop(), -1)
        if channel:
            self._ready.append(channel)
        return channel

    def _arrived(self, channel: Channel, item: Item) -> None:
        self._count(item, +1)
        if len(channel) == 1 and channel not in self._behind_barrier:
            self._ready.append(channel)
        self._wake()

    def _count(self, item: Item, sign: int) -> None:
        if isinstance(item, pa.RecordBatch):
            self._rows += sign * item.num_rows
        elif not isinstance(item, Watermark):  # which waits for company as rows do
            self._signals += sign

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def supersedes(item: Item, last: Item) -> bool:
    """Whether it says all that the item before it says, so that watermarks without rows between them never pile up."""
    return isinstance(item, Watermark) and isinstance(last, Watermark) and (item.at is not None or last.at is None)


def _rows_of(item: Item) -> int:
    return item.num_rows if isinstance(item, pa.RecordBatch) else 0
