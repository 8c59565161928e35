"""Rows leave an async function with their results; signals keep their place among them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.program import AsyncUdf
from penstock.worker.channels import Channel, Inbox, Item
from penstock.worker.operators.async_udf import AsyncUdfStage
from penstock.worker.signals import Barrier, EndOfData, Watermark

ROWS = pa.schema([("n", pa.int64()), ("_udf0_0", pa.int64())])
OUTPUT = pa.schema([("n", pa.int64()), ("_udf0", pa.int64())])


def rows(numbers: Iterable[int]) -> pa.RecordBatch:
    column = pa.array(numbers, pa.int64())
    return pa.record_batch([column, column], schema=ROWS)


class Answers:
    """Gives ten times the argument for rows that a test lets go, in the order in which it does."""

    def __init__(self) -> None:
        self.submitted: list[int] = []
        self._ready: asyncio.Queue[pa.RecordBatch | Exception] = asyncio.Queue()

    async def submit(self, batch: pa.RecordBatch) -> None:
        self.submitted += batch.column("_udf0_0").to_pylist()

    async def results(self) -> pa.RecordBatch:
        ready = await self._ready.get()
        if isinstance(ready, Exception):
            raise ready
        return ready

    def fail(self, error: Exception) -> None:
        self._ready.put_nowait(error)

    def let_go(self, *numbers: int) -> None:
        values = [self.submitted[number] * 10 for number in numbers]
        self._ready.put_nowait(pa.record_batch({"row": pa.array(numbers, pa.int64()), "value": pa.array(values)}))


class Left:
    """What has left the stage."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def offer(self, item: Item) -> bool:
        self.items.append(item)
        return True

    async def send(self, item: Item) -> None:
        self.offer(item)

    @property
    def told(self) -> list[Any]:
        """Signals, and of rows the number and the result."""
        found: list[Any] = []
        for item in self.items:
            if isinstance(item, pa.RecordBatch):
                assert item.schema == OUTPUT
                found += zip(item.column("n").to_pylist(), item.column("_udf0").to_pylist(), strict=True)
            else:
                found.append(item)
        return found


class Running:
    def __init__(self, channel: Channel, answers: Answers, left: Left, task: asyncio.Task[None]) -> None:
        self.channel, self.answers, self.left, self.task = channel, answers, left, task

    async def settle(self) -> None:
        """Lets everything happen that can."""
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def running(*, in_flight: int = 4, has_checkpoints: bool = True) -> AsyncIterator[Running]:
    inbox, answers, left = Inbox(), Answers(), Left()
    kind = AsyncUdf("f", ("_udf0_0",), "_udf0", ordered=False, in_flight=in_flight, timeout_ms=1000, retries=0)
    stage = AsyncUdfStage(kind, OUTPUT, answers, has_checkpoints=has_checkpoints)
    task = asyncio.create_task(stage.run(inbox, left))
    try:
        yield Running(inbox.channel(1000), answers, left, task)
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def send(running: Running, *items: Item) -> None:
    for item in items:
        await running.channel.send(item)
        await running.settle()


async def test_rows_leave_with_their_results_as_these_come() -> None:
    async with running() as found:
        await send(found, rows([7, 8]), rows([9]))
        found.answers.let_go(2, 0)
        await found.settle()
        assert found.left.told == [(7, 70), (9, 90)]
        found.answers.let_go(1)
        await found.settle()
        assert found.left.told == [(7, 70), (9, 90), (8, 80)]


@pytest.mark.parametrize("signal", [Watermark(5), Barrier(1)])
async def test_nothing_overtakes_a_signal(signal: Item) -> None:
    async with running() as found:
        await send(found, rows([1, 2]), signal, rows([3]))
        assert found.answers.submitted == [1, 2, 3]  # what is behind the signal is on its way already
        found.answers.let_go(2, 1)
        await found.settle()
        assert found.left.told == [(2, 20)]
        found.answers.let_go(0)
        await found.settle()
        assert found.left.told == [(2, 20), (1, 10), signal, (3, 30)]


async def test_signals_pass_at_once_when_nothing_is_on_its_way() -> None:
    async with running() as found:
        await send(found, Watermark(3), rows([1]), Watermark(4))
        assert found.left.told == [Watermark(3)]
        found.answers.let_go(0)
        await found.settle()
        assert found.left.told == [Watermark(3), (1, 10), Watermark(4)]


async def test_no_more_rows_are_taken_than_twice_as_many_as_may_be_on_their_way() -> None:
    async with running(in_flight=2) as found:
        await send(found, *(rows([number]) for number in range(10)))
        assert len(found.answers.submitted) == 4
        found.answers.let_go(0, 1, 2)
        await found.settle()
        assert len(found.answers.submitted) == 7


async def test_stage_ends_behind_the_last_barrier_when_all_rows_have_left() -> None:
    async with running() as found:
        last = Barrier(2, last=True)
        await send(found, rows([1]), EndOfData(), last)
        assert not found.task.done()
        found.answers.let_go(0)
        await asyncio.wait_for(found.task, 5)
        assert found.left.told == [(1, 10), EndOfData(), last]


async def test_stage_of_a_job_without_checkpoints_ends_with_its_data() -> None:
    async with running(has_checkpoints=False) as found:
        await send(found, rows([1]), EndOfData())
        found.answers.let_go(0)
        await asyncio.wait_for(found.task, 5)
        assert found.left.told == [(1, 10), EndOfData()]


async def test_failure_of_the_function_ends_the_stage() -> None:
    async with running() as found:
        await send(found, rows([1]))
        found.answers.fail(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await asyncio.wait_for(found.task, 5)
