"""The middle stage of a subtask: what is in its inbox through its chain, and on along its edges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import assert_never

from penstock.common.crash_points import crash_point
from penstock.common.errors import InternalError
from penstock.worker.batches import Batches, joined
from penstock.worker.chain import Chain
from penstock.worker.channels import Inbox
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.outlets import Outlets
from penstock.worker.pace import Pace
from penstock.worker.partition_times import PartitionTimes
from penstock.worker.signals import (
    START_OF_TIME,
    Barrier,
    EndOfData,
    FromPartition,
    PartitionEnded,
    PartitionIdle,
    Pause,
    Positions,
    Watermark,
)
from penstock.worker.snapshots import Snapshots
from penstock.worker.steps import Step


class Processor:
    """Takes rows and watermarks in until all inputs have ended. `times` is there when the chain observes a source."""

    def __init__(
        self,
        inbox: Inbox,
        chain: Chain,
        outlets: Outlets,
        metrics: SubtaskMetrics,
        pace: Pace,
        times: PartitionTimes | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._inbox = inbox
        self._chain = chain
        self._outlets = outlets
        self._metrics = metrics
        self._pace = pace
        self._times = times
        self._snapshots = snapshots
        self._positions: Mapping[str, bytes] = {}
        self._partition = 0
        self._worked_at = -pace.linger_seconds
        self._flush_at: float | None = None
        self._due: list[Watermark] = []

    async def run(self) -> None:
        """Works until all inputs have ended; with checkpoints, until the last one."""
        loop = asyncio.get_running_loop()
        await self._keep_time()
        while True:
            match taken := self._inbox.take(self._pace.batch_rows):
                case tuple():
                    await self._work(taken)
                    self._worked_at = loop.time()
                case Watermark():
                    await self._pass_on(taken)
                case None:
                    await self._rest()
                case Pause():
                    pass
                case FromPartition(partition):
                    self._partition = partition
                case PartitionIdle() | PartitionEnded():
                    await self._leave_out(taken)
                case Positions(values):
                    self._positions = values
                case Barrier():
                    await self._checkpoint(taken)
                    if taken.last:
                        break
                case EndOfData():
                    await self._end(taken)
                    if self._snapshots is None:
                        break
                case _:
                    assert_never(taken)
            if self._flush_at is not None and loop.time() >= self._flush_at:
                await self._flush()

    async def _work(self, batches: Batches) -> None:
        for batch in batches:
            self._metrics.count_in(batch)
        if self._times is None:
            await self._outlets.send(await self._chain.process(batches if self._chain else joined(batches)))
        else:
            await self._observe(self._times, batches)
        if self._flush_at is None and self._chain.holds_changes:
            self._flush_at = asyncio.get_running_loop().time() + self._pace.updating_flush_seconds

    async def _observe(self, times: PartitionTimes, batches: Batches) -> None:
        times.resume(self._partition)
        await self._keep_time()  # ahead of the rows: those who follow must wait for a source that was idle
        observation = await self._chain.observe(batches, times.before(self._partition))
        self._metrics.count_late(observation.late_rows)
        await self._outlets.send(observation.batches)
        times.observed(self._partition, observation.watermark)
        await self._keep_time()

    async def _leave_out(self, signal: PartitionIdle | PartitionEnded) -> None:
        if self._times is not None:
            match signal:
                case PartitionIdle(partition):
                    self._times.idle(partition)
                case PartitionEnded(partition):
                    self._times.end(partition)
                case _:
                    assert_never(signal)
        await self._keep_time()

    async def _keep_time(self) -> None:
        """Passes a source's own watermark on when it has changed."""
        while self._times is not None and (watermark := self._times.turn()) is not None:
            await self._pass_on(watermark)

    async def _pass_on(self, watermark: Watermark) -> None:
        """Through the chain and out. Changes that are held back are ahead of it, so that it waits for them."""
        if watermark.at is not None:
            self._due.clear()
        self._due.append(watermark)
        if not self._chain.holds_changes:
            await self._pass_due_on()

    async def _pass_due_on(self) -> None:
        due, self._due = self._due, []
        for watermark in due:
            if watermark.at is not None and watermark.at > self._metrics.watermark:
                self._metrics.watermark = watermark.at
                await self._chain.advance(watermark.at, self._outlets.send)
                await self._chain.flush(self._outlets.send)
            await self._outlets.pass_on(watermark)

    async def _flush(self) -> None:
        self._flush_at = None
        await self._chain.flush(self._outlets.send)
        await self._pass_due_on()

    async def _rest(self) -> None:
        """Waits for more. Small batches that follow each other closely wait for company; one after a quiet time does
        not."""
        await self._outlets.pause()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._flush_at):
                await self._inbox.wait()
        until = self._worked_at + self._pace.linger_seconds
        if until > asyncio.get_running_loop().time():
            await self._inbox.gather(self._pace.batch_rows, until)

    async def _end(self, end: EndOfData) -> None:
        if end.complete:
            await self._chain.finish(self._outlets.send)
            if self._metrics.watermark != START_OF_TIME:
                self._metrics.watermark = END_OF_TIME
        else:
            await self._flush()
        if self._times is not None:
            self._times.leave()
        await self._outlets.end(end)

    async def _checkpoint(self, barrier: Barrier) -> None:
        """What is held back goes ahead of the barrier, and so need not be kept; the rest is frozen."""
        if self._snapshots is None:
            raise InternalError("a barrier has come to a job without checkpoints")
        await self._flush()
        self._snapshots.note_source(self._positions, {} if self._times is None else self._times.named())
        self._snapshots.freeze(barrier, self._metrics.watermark, self._inbox.aligning_since)
        await self._outlets.separate(barrier)
        await crash_point(Step.BARRIER_PASSED_ON)
