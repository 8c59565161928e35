"""The last stage of a subtask: its rows into a sink."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pyarrow as pa

from penstock.connectors.base import Sink
from penstock.worker.batches import Batches, joined
from penstock.worker.channels import Inbox
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.pace import Pace
from penstock.worker.portions import Portion
from penstock.worker.signals import Barrier, EndOfData, Pause


class Writer:
    """Writes to a sink; makes rows visible when the stream pauses, and before any has waited too long.

    With `stage`, which is called at each barrier, it goes on to the last one."""

    def __init__(
        self,
        inbox: Inbox,
        sink: Sink,
        metrics: SubtaskMetrics,
        pace: Pace,
        stage: Callable[[Barrier], Awaitable[None]] | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._inbox = inbox
        self._sink = sink
        self._metrics = metrics
        self._pace = pace
        self._stage = stage
        self._now_us = now_us
        self._portion = Portion(pace.batch_rows)
        self._flush_at: float | None = None

    async def run(self) -> None:
        """Writes until the last row is visible, or with checkpoints staged."""
        loop = asyncio.get_running_loop()
        while True:
            match taken := self._inbox.take(self._pace.batch_rows):
                case tuple():
                    if self._flush_at is None:
                        self._flush_at = loop.time() + self._pace.flush_seconds
                    await self._write(taken)
                case Pause():
                    await self._flush()
                case None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(self._flush_at):
                            await self._inbox.wait()
                case EndOfData():
                    await self._flush()
                    if self._stage is None:
                        break
                case Barrier():
                    assert self._stage is not None
                    await self._stage(taken)
                    self._flush_at = None
                    if taken.last:
                        break
                case _:
                    pass  # event time is nothing to a sink
            if self._flush_at is not None and loop.time() >= self._flush_at:
                await self._flush()

    async def _write(self, batches: Batches) -> None:
        for batch in joined(batches):
            written = 0
            while written < batch.num_rows:
                rows = batch.slice(written, self._portion.rows)
                await self._write_portion(rows)
                written += rows.num_rows

    async def _write_portion(self, rows: pa.RecordBatch) -> None:
        started_at = time.monotonic()
        await self._sink.write(rows)
        self._portion.learn(rows.num_rows, time.monotonic() - started_at)
        self._metrics.count_out(rows)
        if self._metrics.latency is not None:
            self._metrics.latency.observe(rows, self._now_us())

    async def _flush(self) -> None:
        await self._sink.flush()
        self._flush_at = None
