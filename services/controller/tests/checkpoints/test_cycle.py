"""A cycle whose storage and journal are as slow as a test wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.common.checkpoint.metadata import Snapshot
from penstock.common.ids import Epoch, Generation, JobId, WorkerId
from penstock.common.program import NodeKey
from penstock.common.proto.checkpoint_pb2 import OperatorState
from penstock.common.storage import Storage
from penstock.common.testing import FailingStorage, Fault, eventually, memory_storage
from penstock.controller.checkpoints.coordinator import Past, Policy
from penstock.controller.checkpoints.cycle import CheckpointCycle, CyclePorts, JobPorts
from penstock.controller.checkpoints.messages import (
    Aim,
    Aimed,
    Begin,
    Commits,
    Part,
    TaskCommitted,
    TaskCompleted,
)
from penstock.controller.checkpoints.records import CheckpointRecord
from penstock.controller.execution import Execution
from penstock.controller.records import Entry, Failure, TaskId, TaskOwner
from penstock.controller.registry import Worker
from penstock.controller.testing import pipeline_program, wall_clock

IN, OUT = TaskId(NodeKey("in"), 0), TaskId(NodeKey("out"), 0)
WORKER = Worker(WorkerId.new(), None, "", "", 0)
ONE = Epoch(1)


class Around:
    """All that is around a cycle."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = storage or memory_storage()
        self.rows: list[tuple[int, str]] = []
        self.errors: list[str | None] = []
        self.begun: list[Begin] = []
        self.committed: list[Epoch] = []
        self.warnings: list[Failure] = []
        self.writable = asyncio.Event()
        self.writable.set()
        self.execution = Execution(TaskOwner(JobId.new(), Generation(1)), pipeline_program().at_parallelism(1))
        self.execution.assign(WORKER.id, [IN, OUT])

    def append(self, entry: Entry) -> None:
        assert entry.checkpoint is not None
        self.rows.append((entry.checkpoint.epoch, entry.checkpoint.state))
        self.errors.append(entry.checkpoint.error)

    async def write(self, entry: Entry) -> None:
        await self.writable.wait()
        self.append(entry)

    async def checkpoint(self, worker: Worker, owner: TaskOwner, begin: Begin) -> None:
        self.begun.append(begin)

    async def commit(self, worker: Worker, owner: TaskOwner, epoch: Epoch, commits: Commits) -> None:
        self.committed.append(epoch)

    def remember(self, job: JobId, snapshot: Snapshot) -> None: ...

    def tidy(self, job: JobId) -> None: ...

    def checkpoint_ended(self, record: CheckpointRecord) -> None: ...

    @asynccontextmanager
    async def cycle(self, max_failures: int = 3) -> AsyncIterator[CheckpointCycle]:
        ports = CyclePorts(self.storage, self, self, self, self, time.monotonic, wall_clock)
        job = JobPorts(lambda: {WORKER.id: WORKER}, self.warnings.append, lambda: None)
        cycle = CheckpointCycle(self.execution, ports, job)
        cycle.open(Past(), Policy(0.02, 60, max_failures, 1))
        cycle.report(Aimed(Aim.STOP))
        yield cycle
        await cycle.close("it was closed")

    async def until(self, *rows: tuple[int, str]) -> None:
        async def are_there() -> bool:
            return self.rows == list(rows)

        try:
            await eventually(are_there)
        except TimeoutError:
            raise AssertionError(self.rows) from None


def complete(cycle: CheckpointCycle, epoch: Epoch = ONE) -> None:
    cycle.report(TaskCompleted(epoch, IN, Part((OperatorState(operator_id="op_in"),))))
    cycle.report(TaskCompleted(epoch, OUT, Part((OperatorState(operator_id="op_out", commit=b"rows"),))))


async def test_workers_hear_of_an_epoch_only_once_its_row_is_written() -> None:
    around = Around()
    around.writable.clear()
    async with around.cycle() as cycle:
        await asyncio.wait({asyncio.create_task(asyncio.sleep(0))})
        assert not around.begun and cycle.outlook.under_way
        around.writable.set()
        await around.until((1, "inprogress"))
        assert [begin.epoch for begin in around.begun] == [ONE]


async def test_sinks_commit_only_once_that_is_written() -> None:
    around = Around()
    async with around.cycle() as cycle:
        await around.until((1, "inprogress"))
        around.writable.clear()
        complete(cycle)
        metadata = around.storage.child(f"{around.execution.owner.job_id}/checkpoints/checkpoint-0000001")
        await eventually(lambda: metadata.exists("metadata"))
        assert not around.committed
        around.writable.set()
        await around.until((1, "inprogress"), (1, "committing"))
        assert around.committed == [ONE]


async def test_what_was_decided_is_written_though_the_job_is_over() -> None:
    around = Around()
    async with around.cycle() as cycle:
        await around.until((1, "inprogress"))
        complete(cycle)
        await around.until((1, "inprogress"), (1, "committing"))
        cycle.report(TaskCommitted(ONE, OUT))
        assert cycle.outlook.final
    assert around.rows[-1] == (1, "ready")


async def test_what_cannot_be_complete_is_abandoned_with_the_cycle_and_what_may_be_is_not() -> None:
    around = Around()
    async with around.cycle():
        await around.until((1, "inprogress"))
    assert around.rows == [(1, "inprogress"), (1, "abandoned")] and around.errors[-1] == "it was closed"
    around = Around()
    async with around.cycle() as cycle:
        await around.until((1, "inprogress"))
        complete(cycle)
    assert around.rows == [(1, "inprogress")]


async def test_storage_that_fails_is_told_and_another_checkpoint_follows() -> None:
    around = Around(FailingStorage(memory_storage(), Fault(1, "put")))
    async with around.cycle() as cycle:
        await around.until((1, "inprogress"))
        complete(cycle)
        await around.until((1, "inprogress"), (1, "abandoned"), (2, "inprogress"))
        assert around.execution.progress.failure is None
        complete(cycle, Epoch(2))
        await around.until((1, "inprogress"), (1, "abandoned"), (2, "inprogress"), (2, "committing"))
    (warning,) = around.warnings
    assert warning.message == "checkpoint 1 was abandoned: injected failure before put, call 1"


async def test_storage_that_goes_on_failing_fails_the_job() -> None:
    around = Around(FailingStorage(memory_storage(), Fault(1, "put", "after")))
    async with around.cycle(max_failures=1) as cycle:
        await around.until((1, "inprogress"))
        complete(cycle)
        await around.until((1, "inprogress"), (1, "abandoned"))
        failure = around.execution.progress.failure
        assert failure is not None and failure.is_fatal
        assert failure.message == "a checkpoint failed: injected failure after put, call 1"
