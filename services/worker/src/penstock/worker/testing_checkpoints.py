"""The controller's part of checkpoints, for jobs that a test runs in its own process."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.common.checkpoint.matching import derive_fingerprint
from penstock.common.checkpoint.metadata import write_metadata, write_operator
from penstock.common.checkpoint.paths import Epoch, checkpoint_path, metadata_path
from penstock.common.program import OperatorKey
from penstock.common.proto.checkpoint_pb2 import CheckpointMetadata, OperatorMetadata, SubtaskState
from penstock.common.storage import Storage
from penstock.worker.assignment import Assignment
from penstock.worker.testing import CompletedReport, MemoryReporter
from penstock.worker.wiring import TaskId

_MOMENT_SECONDS = 0.001


class Execution(Protocol):
    """A job on one worker or on several."""

    assignment: Assignment

    async def checkpoint(self, epoch: int, *, last: bool) -> None: ...

    async def commit(self, task: TaskId, epoch: int, data: bytes) -> None: ...


@dataclass
class Checkpointing:
    """The checkpoints of one job, over all the executions that it has."""

    storage: Storage
    epoch: int = 0
    completed: int | None = None
    """The newest that can be restored."""

    @property
    def restore(self) -> str:
        """The metadata that the next execution goes on from."""
        return "" if self.completed is None else metadata_path(checkpoint_path(Epoch(self.completed)))

    async def take(
        self, execution: Execution, reporter: MemoryReporter, *, last: bool = False, commit: bool = True
    ) -> bool:
        """Makes a checkpoint and, unless not, has it committed; returns whether all subtasks could."""
        self.epoch += 1
        epoch = self.epoch
        await execution.checkpoint(epoch, last=last)
        tasks = set(execution.assignment.tasks)
        await until(
            lambda: (
                {report.task for report in reporter.completed if report.epoch == epoch} == tasks
                or any(failed == epoch for _, failed, _ in reporter.checkpoints_failed)
                or bool(reporter.failed)
            )
        )
        reports = [report for report in reporter.completed if report.epoch == epoch]
        if {report.task for report in reports} != tasks:
            return False
        await self._write(epoch, execution, reports)
        self.completed = epoch
        if commit:
            await self.commit(execution, reports)
        return True

    async def commit(self, execution: Execution, reports: list[CompletedReport]) -> None:
        for report in reports:
            for state in report.operators:
                if state.HasField("commit"):
                    await execution.commit(report.task, report.epoch, state.commit)

    async def finish(self, execution: Execution, reporter: MemoryReporter, running: asyncio.Task[None]) -> None:
        """Waits for all sources' ends, and makes the last checkpoint."""
        program = execution.assignment.program
        sources = [task for task in execution.assignment.tasks if program.node(task.node).is_source]
        await until(lambda: len(set(reporter.tasks_ended)) == len(sources) or running.done())
        if not running.done():
            await self.take(execution, reporter, last=True)
        await running

    async def _write(self, epoch: int, execution: Execution, reports: list[CompletedReport]) -> None:
        program = execution.assignment.program
        subtasks: dict[OperatorKey, list[SubtaskState]] = defaultdict(list)
        nodes = {operator.key: node for node in program.nodes for operator in node.operators}
        for report in reports:
            for state in report.operators:
                subtasks[OperatorKey(state.operator_id)].append(
                    SubtaskState(
                        subtask=report.task.subtask,
                        watermark_us=report.watermark,
                        tables=state.tables,
                        commit=state.commit if state.HasField("commit") else None,
                    )
                )
        fingerprints = {one.key: derive_fingerprint(one) for node in program.nodes for one in node.operators}
        folder, paths = checkpoint_path(Epoch(epoch)), []
        for operator, states in subtasks.items():
            node = nodes[operator]
            metadata = OperatorMetadata(
                operator_id=operator,
                node_id=node.key,
                parallelism=node.parallelism,
                subtasks=states,
                fingerprint=fingerprints[operator],
            )
            paths.append(await write_operator(self.storage, folder, metadata))
        job, now = execution.assignment.job, time.time_ns() // 1000
        whole = CheckpointMetadata(
            job_id=job.id, epoch=epoch, generation=job.generation, finished_at_us=now, operators=paths
        )
        await write_metadata(self.storage, folder, whole)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something that happens in this process."""
    while not condition():  # noqa: ASYNC110 - there are many conditions, and nobody to set an event for each
        await asyncio.sleep(_MOMENT_SECONDS)
