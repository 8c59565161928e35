"""A sink whose rows are staged with each checkpoint, and committed when the whole of it is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.common.crash_points import crash_point
from penstock.connectors.base import StagingSink
from penstock.worker.reports import Reporter
from penstock.worker.signals import Barrier
from penstock.worker.snapshots import Snapshots
from penstock.worker.steps import Step
from penstock.worker.wiring import TaskId


class Staging:
    """The checkpoints of one sink."""

    def __init__(self, task: TaskId, sink: StagingSink, snapshots: Snapshots, reporter: Reporter) -> None:
        self._task = task
        self._sink = sink
        self._snapshots = snapshots
        self._reporter = reporter
        self._committed_epoch = 0
        self._last_epoch: int | None = None
        self._committing = asyncio.Lock()
        self._moved = asyncio.Event()

    async def recover(self, commits: Sequence[bytes]) -> None:
        """Commits again what the restored checkpoint has staged."""
        await crash_point(Step.BEFORE_RECOVER)
        await self._sink.recover(commits)
        await crash_point(Step.RECOVERED)

    async def stage(self, barrier: Barrier) -> None:
        """At a barrier: the rows before it are the checkpoint's."""
        data = await self._sink.stage(barrier.epoch)
        await crash_point(Step.SINK_STAGED)
        self._snapshots.staged(barrier.epoch, data)
        if barrier.last:
            self._last_epoch = barrier.epoch
            self._moved.set()

    async def commit(self, epoch: int, data: bytes) -> None:
        """The checkpoint is complete. The same again does nothing but report it again."""
        async with self._committing:
            if epoch > self._committed_epoch:
                await crash_point(Step.BEFORE_COMMIT)
                await self._sink.commit(data)
                self._committed_epoch = epoch
                await crash_point(Step.COMMITTED)
        self._reporter.task_committed(self._task, epoch)
        await crash_point(Step.COMMIT_REPORTED)
        self._moved.set()

    async def run(self) -> None:
        """Waits until the last checkpoint is committed."""
        while self._last_epoch is None or self._committed_epoch < self._last_epoch:
            await self._moved.wait()
            self._moved.clear()
