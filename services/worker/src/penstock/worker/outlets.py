"""Where a subtask's rows go: along each edge to its subtasks, waiting where there is no room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from penstock.worker.channels import Batches, Channel
from penstock.worker.metrics import Waits
from penstock.worker.signals import Signal


class Outlet(Protocol):
    """One edge, or a sink."""

    async def send(self, batches: Batches) -> None:
        """Passes rows on."""
        ...

    async def signal(self, signal: Signal) -> None:
        """Passes a signal on to everyone downstream."""
        ...


class _Channels:
    def __init__(self, channels: Sequence[Channel], waits: Waits) -> None:
        self._channels = tuple(channels)
        self._waits = waits

    async def signal(self, signal: Signal) -> None:
        for channel in self._channels:
            await channel.send(signal)

    async def _put(self, channel: Channel, batch: pa.RecordBatch) -> None:
        if batch.num_rows and not channel.offer(batch):
            with self._waits.waiting():
                await channel.send(batch)


class InTurn(_Channels):
    """Whole batches to one channel after the other; to the only one when there is one."""

    def __init__(self, channels: Sequence[Channel], waits: Waits, first: int = 0) -> None:
        super().__init__(channels, waits)
        self._next = first % len(channels)

    async def send(self, batches: Batches) -> None:
        for batch in batches:
            if batch.num_rows:
                channel, self._next = self._channels[self._next], (self._next + 1) % len(self._channels)
                await self._put(channel, batch)


class ByPartition(_Channels):
    """The nth batch to the nth channel."""

    async def send(self, batches: Batches) -> None:
        for channel, batch in zip(self._channels, batches, strict=True):
            await self._put(channel, batch)
