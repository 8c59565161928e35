from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InternalError
from penstock.common.program import Edge, EdgeKind, NodeKey, Operator, Program
from penstock.common.testing import eventually
from penstock.connectors.base import NONE_HELD, Source, SourceBatch
from penstock.worker.engine import Execution
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.pace import Pace
from penstock.worker.signals import START_OF_TIME
from penstock.worker.testing import (
    SCHEMA,
    TEST_PACE,
    ListSource,
    MemoryConnector,
    MemoryReporter,
    PartitionedSource,
    PassingEngine,
    assignment,
    node,
    rows,
    sink,
    source,
    surroundings,
    value,
)
from penstock.worker.testing_operators import Operators, latest, waiting

OBSERVE = value("observe", observes=True)
WAITING = waiting(SCHEMA)


def program_of(*operators: Operator, sources: int = 1, targets: int = 1, idle_ms: int = 0) -> Program:
    """A source that observes, and the operators behind a shuffle."""
    return Program(
        (
            node("a", source(idle_ms=idle_ms), OBSERVE, parallelism=sources),
            node("b", *operators, sink(), parallelism=targets),
        ),
        (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE, ("n",)),),
    )


class Job:
    """An execution with what a test looks at."""

    def __init__(
        self, program: Program, *sources: Source, pace: Pace = TEST_PACE, engine: PassingEngine | None = None
    ) -> None:
        self.connector = MemoryConnector({("t", subtask): one for subtask, one in enumerate(sources)})
        self.reporter = MemoryReporter()
        self.engine = engine or PassingEngine()
        self.operators = Operators()
        around = surroundings(self.connector, engine=self.engine, pace=pace, operators=self.operators)
        self.execution = Execution(assignment(program), around, self.reporter)

    @property
    def arrived(self) -> list[int]:
        return sorted(number for one in self.connector.sinks.values() for number in one.numbers)

    async def run(self) -> None:
        async with asyncio.timeout(30):
            await self.execution.run()
        assert not self.reporter.failed

    async def arrive(self, numbers: Sequence[int]) -> None:
        """Waits until these are there."""

        async def there() -> bool:
            assert not self.reporter.failed
            return self.arrived == sorted(numbers)

        await eventually(there)

    async def stop(self, running: asyncio.Task[None]) -> None:
        self.execution.stop()
        await running


def on_time(numbers: Sequence[int], delay: int) -> list[int]:
    """What is left of a partition's rows: those ahead of the watermark just before them."""
    watermark, kept = START_OF_TIME, []
    for number in numbers:
        if number > watermark:
            kept.append(number)
        watermark = max(watermark, number - delay)
    return kept


PARTITION = st.lists(st.lists(st.integers(0, 60), max_size=6), max_size=5)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.lists(PARTITION, min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(0, 20),
    st.integers(1, 12),
)
def test_which_rows_are_late_depends_on_the_order_in_their_partition_alone_and_no_operator_sees_one(
    sources: list[list[list[list[int]]]], targets: int, delay: int, batch_rows: int
) -> None:
    async def scenario() -> None:
        pace = Pace(batch_rows, 2 * batch_rows, 0.0, 0.1)
        job = Job(
            program_of(WAITING, sources=len(sources), targets=targets),
            *(PartitionedSource(*partitions) for partitions in sources),
            pace=pace,
            engine=PassingEngine(delay),
        )
        await job.run()
        partitions = [[n for batch in one for n in batch] for subtask in sources for one in subtask]
        assert job.arrived == sorted(n for one in partitions for n in on_time(one, delay))
        late = sum(metrics.late_rows for metrics in job.execution.metrics)
        assert late == sum(len(one) - len(on_time(one, delay)) for one in partitions)
        for operator in job.operators.waiting:
            assert operator.overtaken == 0
            assert operator.watermarks == sorted(operator.watermarks)
            assert operator.watermarks[-1] == END_OF_TIME
            assert operator.state_rows == 0

    asyncio.run(scenario())


async def test_a_watermark_lets_rows_out_while_the_stream_goes_on() -> None:
    job = Job(program_of(WAITING, targets=2), PartitionedSource([[1, 2, 9], None]), engine=PassingEngine(5))
    running = asyncio.create_task(job.run())
    await job.arrive([1, 2])
    first, second, third = job.execution.metrics
    assert [one.watermark for one in (first, second, third)] == [4, 4, 4]
    assert first.watermark_lag_seconds is not None
    assert second.state_rows + third.state_rows == 1
    await job.stop(running)


async def test_a_graceful_stop_closes_nothing_that_is_open() -> None:
    program = program_of(WAITING, sources=2)
    job = Job(program, PartitionedSource([[5, 8], None]), PartitionedSource([[3]], [[6], [20], None]))
    running = asyncio.create_task(job.run())
    await job.arrive([3, 5, 6, 8])
    assert job.operators.waiting[0].state_rows == 1
    await job.stop(running)
    assert job.arrived == [3, 5, 6, 8]
    assert job.operators.waiting[0].watermarks[-1] == 8
    assert len(job.reporter.finished) == 3


async def test_a_source_that_was_stopped_holds_back_one_that_ends() -> None:
    job = Job(program_of(WAITING, sources=2), PartitionedSource([[5], None]), ListSource([SourceBatch(rows([30]))]))
    running = asyncio.create_task(job.run())
    await job.arrive([5])
    await job.stop(running)
    assert job.arrived == [5]
    assert job.operators.waiting[0].watermarks[-1] < 30


async def test_a_partition_without_rows_holds_the_watermark_back_until_it_is_idle() -> None:
    sources = (PartitionedSource([[1, 2, 9], None], [None]), PartitionedSource([[7], None]))
    job = Job(program_of(WAITING, sources=2, idle_ms=20), *sources)
    running = asyncio.create_task(job.run())
    await job.arrive([1, 2, 7, 9])  # all are idle in the end: what was reached before counts
    await job.stop(running)


async def test_a_partition_without_rows_holds_the_watermark_back_for_ever_when_no_idle_time_is_set() -> None:
    job = Job(program_of(WAITING), PartitionedSource([[1, 2, 9], None], [None]))
    running = asyncio.create_task(job.run())

    async def kept() -> bool:
        return bool(job.operators.waiting) and job.operators.waiting[0].state_rows == 3

    await eventually(kept)
    await job.stop(running)
    assert job.arrived == []
    assert job.operators.waiting[0].watermarks == [START_OF_TIME]


async def test_rows_after_idleness_that_others_have_passed_are_late() -> None:
    gate = asyncio.Event()

    class Returning(ListSource):
        async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
            await gate.wait()
            return await super().read(held)

    returning = Returning([SourceBatch(rows([4, 12, 20]))], ends=False)
    job = Job(program_of(WAITING, sources=2, idle_ms=20), PartitionedSource([[3, 10], None]), returning)
    running = asyncio.create_task(job.run())
    await job.arrive([3, 10])
    gate.set()
    await job.arrive([3, 10, 12, 20])
    assert sum(metrics.late_rows for metrics in job.execution.metrics) == 1
    assert job.operators.waiting[0].overtaken == 0
    await job.stop(running)


async def test_a_subtask_without_partitions_and_one_that_has_ended_hold_nothing_back() -> None:
    sources = (PartitionedSource([[1, 9], None]), ListSource([], ends=False, partitions=0), PartitionedSource([[2]]))
    job = Job(program_of(WAITING, sources=3), *sources)
    running = asyncio.create_task(job.run())
    await job.arrive([1, 2, 9])
    await job.stop(running)


async def test_partitions_that_are_ahead_are_read_later() -> None:
    ahead = [[100 * batch + 1] for batch in range(10)]
    behind = [[batch + 1] for batch in range(10)]
    reading = PartitionedSource(ahead, behind)
    job = Job(program_of(WAITING), reading, pace=Pace(1, 1, 0.0, 0.1))
    await job.run()
    assert frozenset({0}) in reading.asked
    assert frozenset({1}) not in reading.asked
    (observing,) = (one for one in job.engine.planned if one.runs)
    order = [number for _, numbers in observing.runs for number in numbers]
    assert order.index(10) < order.index(501)


async def test_a_drift_makes_the_fast_subtask_wait_for_the_slow_one() -> None:
    gate = asyncio.Event()

    class Slow(ListSource):
        async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
            await gate.wait()
            return await super().read(held)

    fast = PartitionedSource([[number] for number in range(0, 5000, 10)])
    slow = Slow([SourceBatch(rows([number])) for number in range(0, 5000, 10)])
    pace = replace(TEST_PACE, batch_rows=2, channel_rows=2, watermark_drift_us=50)
    job = Job(program_of(WAITING, sources=2), fast, slow, pace=pace)
    running = asyncio.create_task(job.run())
    upstream = job.execution.metrics[0]

    async def waits() -> bool:
        return upstream.watermark > START_OF_TIME and upstream.queued_rows == 0

    await eventually(waits)
    assert len(fast.asked) < 20
    gate.set()
    await running
    assert len(job.arrived) == 1000


async def test_programs_that_observe_nothing_have_no_watermarks() -> None:
    program = Program((node("a", source(), value("…")), node("b", sink())), (Edge(NodeKey("a"), NodeKey("b")),))
    job = Job(program, ListSource([SourceBatch(rows([1, 2]))]))
    await job.run()
    assert job.arrived == [1, 2]
    assert [one.watermark for one in job.execution.metrics] == [START_OF_TIME, START_OF_TIME]


async def test_operators_of_one_chain_advance_one_after_the_other() -> None:
    chain = node("a", source(), OBSERVE, WAITING, value("…"), WAITING, sink())
    job = Job(Program((chain,), ()), PartitionedSource([[5, 1, 7], None]), engine=PassingEngine(6))
    running = asyncio.create_task(job.run())
    await job.arrive([1])
    first, second = job.operators.waiting
    assert first.watermarks == second.watermarks == [START_OF_TIME, 1]
    assert (first.state_rows, second.state_rows) == (2, 0)
    await job.stop(running)


async def test_changes_are_held_for_an_interval_and_leave_while_the_input_is_quiet() -> None:
    for seconds in (0.0, 0.02):
        pace = replace(TEST_PACE, updating_flush_seconds=seconds)
        job = Job(program_of(latest(SCHEMA)), PartitionedSource([[1, 2, 2], [1, 3], None]), pace=pace)
        running = asyncio.create_task(job.run())

        async def shown(job: Job = job) -> bool:
            return {1, 2, 3} <= set(job.arrived)

        await eventually(shown)
        assert next(iter(job.connector.sinks.values())).visible == len(job.arrived)
        await job.stop(running)


@pytest.mark.parametrize("stopped", [True, False])
async def test_changes_that_are_held_leave_at_the_end_of_any_kind(stopped: bool) -> None:
    pace = replace(TEST_PACE, updating_flush_seconds=3600.0)
    batches: list[Sequence[int] | None] = [[1, 2, 2], [1, 3], *([None] if stopped else [])]
    job = Job(program_of(latest(SCHEMA)), PartitionedSource(batches), pace=pace, engine=PassingEngine(100))
    running = asyncio.create_task(job.run())
    if stopped:

        async def read() -> bool:
            return job.execution.metrics[1].rows_in == 5

        await eventually(read)
        assert job.arrived == []
        job.execution.stop()
    await running
    assert job.arrived == [1, 2, 3]


async def test_a_watermark_waits_for_changes_that_are_held_ahead_of_it() -> None:
    program = Program(
        (node("a", source(), OBSERVE), node("b", latest(SCHEMA)), node("c", WAITING, sink())),
        (Edge(NodeKey("a"), NodeKey("b")), Edge(NodeKey("b"), NodeKey("c"))),
    )
    for seconds in (0.02, 3600.0):
        pace = replace(TEST_PACE, updating_flush_seconds=seconds)
        job = Job(program, PartitionedSource([[1], [5], [3, 9], *([None] if seconds < 1 else [])]), pace=pace)
        running = asyncio.create_task(job.run())
        if seconds < 1:
            await job.arrive([1, 5, 9])
            job.execution.stop()
        await running
        assert job.arrived == [1, 5, 9]
        assert job.operators.waiting[0].overtaken == 0


async def test_late_rows_are_counted_where_a_query_behind_the_observation_drops_them() -> None:
    window = value("SELECT * FROM input WHERE penstock_on_time(_timestamp, _watermark)")
    program = Program((node("a", source()), node("b", window, sink())), (Edge(NodeKey("a"), NodeKey("b")),))
    job = Job(program, ListSource([SourceBatch(rows([1, 5, 3, 7]))]))
    await job.run()
    assert job.arrived == [1, 5, 7]
    assert [one.late_rows for one in job.execution.metrics] == [0, 1]


async def test_observing_without_a_source_is_refused() -> None:
    program = Program((node("a", source()), node("b", OBSERVE, sink())), (Edge(NodeKey("a"), NodeKey("b")),))
    job = Job(program, ListSource([]))
    await job.execution.run()
    assert [type(error) for _, error in job.reporter.failed] == [InternalError]
