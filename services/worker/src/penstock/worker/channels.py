"""Channels between the stages of a job, bounded by rows: one sender each, any number into one inbox."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TypeAlias, assert_never

import pyarrow as pa

from penstock.worker.signals import EndOfData, Pause, Signal

Batches: TypeAlias = tuple[pa.RecordBatch, ...]
Item: TypeAlias = pa.RecordBatch | Signal


class Channel:
    """One sender's way into an inbox. It holds at most `bound` rows, or a single batch that is larger."""

    def __init__(self, inbox: Inbox, bound: int) -> None:
        self._inbox = inbox
        self._bound = bound
        self._items: deque[Item] = deque()
        self._rows = 0
        self._room: asyncio.Future[None] | None = None

    @property
    def rows(self) -> int:
        """The rows that wait in it."""
        return self._rows

    def offer(self, item: Item) -> bool:
        """Puts an item in when there is room; a signal takes none."""
        rows = _rows_of(item)
        if rows and self._rows and self._rows + rows > self._bound:
            return False
        self._items.append(item)
        self._rows += rows
        self._inbox._arrived(self, item)
        return True

    async def send(self, item: Item) -> None:
        """Puts an item in as soon as there is room. Cancelled, it has put in nothing."""
        while not self.offer(item):
            self._room = asyncio.get_running_loop().create_future()
            self._inbox._blocked(+1)
            try:
                await self._room
            finally:
                self._inbox._blocked(-1)
                self._room = None

    def _head(self) -> Item:
        return self._items[0]

    def _pop(self) -> Item:
        item = self._items.popleft()
        self._rows -= _rows_of(item)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return item

    def __len__(self) -> int:
        return len(self._items)


class Inbox:
    """Where a receiver takes what its channels hold: from one after the other, so that none waits for another's end."""

    def __init__(self) -> None:
        self._ready: deque[Channel] = deque()  # those that hold something, each once
        self._open = 0
        self._rows = 0
        self._signals = 0
        self._blocked_senders = 0
        self._arrival: asyncio.Future[None] | None = None

    def channel(self, bound: int) -> Channel:
        """A new channel into this inbox."""
        self._open += 1
        return Channel(self, bound)

    @property
    def rows(self) -> int:
        """The rows that wait in all channels."""
        return self._rows

    def take(self, rows: int) -> Batches | Signal | None:
        """What is there, without waiting: batches of together at most so many rows (or one that is larger), or else a
        signal, or else None. `EndOfData` is taken once all channels have ended."""
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
                case EndOfData():
                    self._pop()
                    self._open -= 1
                case Pause():
                    if len(self._ready[0]) == 1:
                        if taken:
                            break
                        self._pop()
                        return item
                    self._pop()  # rows have followed: the pause is over
                case _:
                    assert_never(item)
        if taken:
            return tuple(taken)
        return EndOfData() if self._open == 0 else None

    async def wait(self) -> None:
        """Waits until `take` has something to give."""
        while not self._ready and self._open:
            await self._next_arrival()

    async def gather(self, rows: int, until: float) -> None:
        """Waits until so many rows are there or no more can come without a `take`, at most until a time of the loop."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._rows < rows and not self._signals and not self._blocked_senders:
                    await self._next_arrival()

    async def _next_arrival(self) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _pop(self) -> None:
        channel = self._ready.popleft()
        self._count(channel._pop(), -1)
        if channel:
            self._ready.append(channel)

    def _arrived(self, channel: Channel, item: Item) -> None:
        self._count(item, +1)
        if len(channel) == 1:
            self._ready.append(channel)
        self._wake()

    def _count(self, item: Item, sign: int) -> None:
        if isinstance(item, pa.RecordBatch):
            self._rows += sign * item.num_rows
        else:
            self._signals += sign

    def _blocked(self, change: int) -> None:
        self._blocked_senders += change
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def _rows_of(item: Item) -> int:
    return item.num_rows if isinstance(item, pa.RecordBatch) else 0
