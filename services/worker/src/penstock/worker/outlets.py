"""Where a subtask's rows go: along each edge to its subtasks, waiting where there is no room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from penstock.worker.batches import Batches, has_rows
from penstock.worker.channels import Item
from penstock.worker.metrics import SubtaskMetrics, Waits
from penstock.worker.signals import Barrier, EndOfData, Pause, Signal, Watermark


class Sender(Protocol):
    """One channel, to a subtask of this worker or of another."""

    def offer(self, item: Item) -> bool:
        """Sends an item when there is room; a signal takes none."""
        ...

    async def send(self, item: Item) -> None:
        """Sends an item as soon as there is room."""
        ...


class Outlet(Protocol):
    """One edge, or a sink."""

    async def send(self, batches: Batches) -> None:
        """Passes rows on."""
        ...

    async def signal(self, signal: Signal) -> None:
        """Passes a signal on to everyone downstream."""
        ...


class _Channels:
    def __init__(self, channels: Sequence[Sender], waits: Waits) -> None:
        self._channels = tuple(channels)
        self._waits = waits

    async def signal(self, signal: Signal) -> None:
        for channel in self._channels:
            await channel.send(signal)

    async def _put(self, channel: Sender, batch: pa.RecordBatch) -> None:
        if batch.num_rows and not channel.offer(batch):
            with self._waits.waiting():
                await channel.send(batch)


class InTurn(_Channels):
    """Whole batches to one channel after the other; to the only one when there is one."""

    def __init__(self, channels: Sequence[Sender], waits: Waits, first: int = 0) -> None:
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


class Outlets:
    """All ways out of a subtask: its edges, and its sink when it has one, to which event time is nothing."""

    def __init__(self, edges: Sequence[Outlet], sink: Outlet | None, metrics: SubtaskMetrics) -> None:
        self._edges = tuple(edges)
        self._sink = sink
        self._metrics = metrics
        self._paused = True

    async def send(self, batches: Batches) -> None:
        """Passes rows on; rows for a sink are counted when they are written."""
        if not has_rows(batches):
            return
        for edge in self._edges:
            await edge.send(batches)
        if self._sink is not None:
            self._paused = False
            await self._sink.send(batches)
        else:
            for batch in batches:
                self._metrics.count_out(batch)

    async def pass_on(self, watermark: Watermark) -> None:
        """Tells everyone downstream of a watermark."""
        for edge in self._edges:
            await edge.signal(watermark)

    async def pause(self) -> None:
        """Tells the sink that no rows follow for now, once after the last."""
        if self._sink is not None and not self._paused:
            await self._sink.signal(Pause())
        self._paused = True

    async def end(self, end: EndOfData) -> None:
        """Tells everyone that this was all."""
        await self._signal(end)

    async def separate(self, barrier: Barrier) -> None:
        """Tells everyone that what follows is of the next checkpoint."""
        await self._signal(barrier)

    async def _signal(self, signal: EndOfData | Barrier) -> None:
        for outlet in (*self._edges, *(() if self._sink is None else (self._sink,))):
            await outlet.signal(signal)
