"""A subtask's checkpoints: what was frozen is what is restored, also when the storage refuses, and after many files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.checkpoint.metadata import CorruptSnapshot
from penstock.common.program import NodeKey, OperatorKey
from penstock.common.storage import Storage
from penstock.common.testing import FailingStorage, Fault, memory_storage
from penstock.worker import state_files
from penstock.worker.signals import START_OF_TIME, Barrier
from penstock.worker.snapshots import KeptTable, Snapshots
from penstock.worker.state.keyed import KeyedState, loaded
from penstock.worker.testing import MemoryReporter
from penstock.worker.testing_checkpoints import until
from penstock.worker.wiring import TaskId

ROWS = pa.schema([("n", pa.int64()), ("_hash", pa.int64())])
OPERATOR = OperatorKey("groups")


class Subtask:
    """A subtask with one table of keyed state."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.state = KeyedState(ROWS)
        self.state.table.begin()
        self.reporter = MemoryReporter()
        self.kept = KeptTable(OPERATOR, "groups", self.state.table)
        task = TaskId(NodeKey("groups"), 0)
        self.snapshots = Snapshots(task, 1, storage, self.reporter, [self.kept])
        self.epoch = 0

    def put(self, keys: range, value: int) -> None:
        rows = pa.record_batch([np.full(len(keys), value), np.array(keys)], schema=ROWS)
        self.state.replace(np.array(keys), rows)

    async def checkpoint(self) -> bool:
        self.epoch += 1
        self.snapshots.freeze(Barrier(self.epoch), START_OF_TIME, None)

        def told(epoch: int) -> bool:
            completed = any(report.epoch == epoch for report in self.reporter.completed)
            return completed or any(failed == epoch for _, failed, _ in self.reporter.checkpoints_failed)

        await until(lambda: told(self.epoch))
        return self.reporter.completed[-1].epoch == self.epoch if self.reporter.completed else False

    async def restored(self) -> KeyedState:
        """As the last completed checkpoint has it."""
        (operator,) = self.reporter.completed[-1].operators
        state = KeyedState(ROWS)
        for table in operator.tables:
            async for rows in state_files.latest(self.storage, table.files, tombstones=False):
                loaded(state, rows, ROWS)
        return state


@asynccontextmanager
async def subtask(storage: Storage) -> AsyncIterator[Subtask]:
    made = Subtask(storage)
    running = asyncio.create_task(made.snapshots.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def content(state: KeyedState) -> list[tuple[int, int]]:
    rows = state.fetch(np.arange(200))
    return sorted(zip(rows.column("_hash").to_pylist(), rows.column("n").to_pylist(), strict=True))


async def test_what_the_storage_refused_is_in_the_next_checkpoint() -> None:
    async with subtask(FailingStorage(memory_storage(), Fault(2, "put"))) as one:
        one.put(range(10), 1)
        assert await one.checkpoint()
        one.put(range(5, 15), 2)
        assert not await one.checkpoint()
        assert [epoch for _, epoch, _ in one.reporter.checkpoints_failed] == [2]
        one.put(range(14, 20), 3)
        assert await one.checkpoint()
        assert content(await one.restored()) == content(one.state)


async def test_files_stay_few_and_hold_everything() -> None:
    async with subtask(memory_storage()) as one:
        for number in range(60):
            one.put(range(number, number + 20), number)
            if number % 3 == 0:
                one.state.replace(np.array([number]), pa.RecordBatch.from_pylist([], ROWS))
            assert await one.checkpoint()
            await asyncio.sleep(0.01)
        assert len(one.kept.files) < 20
        assert any(file.compacted for file in one.kept.files)
        assert content(await one.restored()) == content(one.state)


async def test_a_checkpoint_without_changes_writes_nothing() -> None:
    async with subtask(memory_storage()) as one:
        one.put(range(10), 1)
        await one.checkpoint()
        await one.checkpoint()
        assert [report.operators[0].written_bytes > 0 for report in one.reporter.completed] == [True, False]
        assert content(await one.restored()) == content(one.state)


@pytest.mark.parametrize("damage", ["missing", "cut", "nonsense"])
async def test_a_file_that_is_damaged_is_named(damage: str) -> None:
    async with subtask(memory_storage()) as one:
        one.put(range(10), 1)
        await one.checkpoint()
        (file,) = one.kept.files
        whole = await one.storage.get(file.path)
        await one.storage.delete(file.path)
        if damage != "missing":
            await one.storage.put(file.path, whole[: len(whole) // 2] if damage == "cut" else b"nonsense")
        with pytest.raises(CorruptSnapshot, match=file.path):
            await one.restored()
