from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate, count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import ErrorDomain, InternalError, RetryHint, UserError
from penstock.common.program import (
    ConnectorSink,
    ConnectorSource,
    Edge,
    EdgeKind,
    NodeKey,
    Operator,
    OperatorKey,
    Output,
    Program,
)
from penstock.common.testing import eventually
from penstock.connectors.base import DEAD_LETTERS, NONE_HELD, SourceBatch
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.spark.errors import EngineLost
from penstock.worker.engine import Execution, TaskState
from penstock.worker.pace import Pace
from penstock.worker.subtask import FragmentEngine
from penstock.worker.testing import (
    SCHEMA,
    TEST_PACE,
    CollectingSink,
    ListSource,
    MemoryConnector,
    MemoryReporter,
    PassingEngine,
    assignment,
    node,
    rows,
    sink,
    source,
    surroundings,
    value,
)
from penstock.worker.wiring import TaskId

CHAIN = Program((node("a", source(), sink()),), ())


def batches(*sizes: int) -> list[SourceBatch]:
    return [SourceBatch(rows(range(end - size, end))) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def execution_of(
    program: Program,
    connector: MemoryConnector,
    *,
    engine: FragmentEngine | None = None,
    pace: Pace = TEST_PACE,
) -> tuple[Execution, MemoryReporter]:
    reporter = MemoryReporter()
    execution = Execution(assignment(program), surroundings(connector, engine=engine, pace=pace), reporter)
    return execution, reporter


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Program, dict[int, list[int]]]:
    """Two sources' worth of batches through a random layer of chains to a random number of sinks."""
    parallelism = draw(st.integers(1, 3))
    middle = draw(st.integers(1, 3))
    last = draw(st.integers(1, 3))
    by_key = draw(st.booleans())
    sizes = {subtask: draw(st.lists(st.integers(0, 40), max_size=8)) for subtask in range(parallelism)}
    sinks = [node(f"sink{number}", sink(f"out{number}"), parallelism=last) for number in range(draw(st.integers(1, 2)))]
    chains = [node("source", source(), parallelism=parallelism), node("middle", value("…"), parallelism=middle), *sinks]
    edges = [("source", "middle", parallelism, middle), *(("middle", one.key, middle, last) for one in sinks)]
    return (
        Program(
            tuple(chains),
            tuple(
                Edge(
                    NodeKey(start),
                    NodeKey(end),
                    draw(st.sampled_from(EdgeKind)) if left == right and not by_key else EdgeKind.SHUFFLE,
                    ("n",) if by_key and start == "middle" else (),
                )
                for start, end, left, right in edges
            ),
        ),
        sizes,
    )


@settings(deadline=None, max_examples=60)
@given(jobs(), st.integers(1, 50), st.integers(1, 50), st.sampled_from([0.0, 0.001]))
def test_every_row_arrives_once_at_every_sink_in_the_order_of_its_source(
    job: tuple[Program, dict[int, list[int]]], batch_rows: int, channel_rows: int, linger: float
) -> None:
    program, sizes = job

    async def scenario() -> None:
        numbers = count()
        sent = {
            subtask: [[next(numbers) * 10 + subtask for _ in range(size)] for size in lengths]
            for subtask, lengths in sizes.items()
        }
        connector = MemoryConnector(
            {("t", subtask): ListSource(SourceBatch(rows(one)) for one in lists) for subtask, lists in sent.items()}
        )
        execution, reporter = execution_of(program, connector, pace=Pace(batch_rows, channel_rows, linger, 0.1))
        await execution.run()
        assert not reporter.failed
        assert set(reporter.finished) == set(execution.states)
        expected = sorted(number for lists in sent.values() for one in lists for number in one)
        for table in {table for table, _ in connector.sinks}:
            parts = [one for (name, _), one in connector.sinks.items() if name == table]
            assert sorted(number for part in parts for number in part.numbers) == expected
            assert all(part.visible == len(part.numbers) and part.closed for part in parts)
            if len(parts) == 1 and program.node(NodeKey("middle")).parallelism == 1:
                for subtask in sizes:
                    arrived = [number for number in parts[0].numbers if number % 10 == subtask]
                    assert arrived == sorted(arrived)
            if any(edge.keys for edge in program.edges):
                for subtask in range(len(parts)):
                    numbers_there = connector.sinks[table, subtask].numbers
                    assert all(number % len(parts) == subtask for number in numbers_there)

    asyncio.run(scenario())


async def test_a_query_runs_on_the_engine_with_partitions_by_key(engine: Engine) -> None:
    program = Program(
        (
            node("a", source(), value("SELECT n * 2 AS n, _timestamp FROM input WHERE n % 3 = 0"), parallelism=2),
            node("b", value("SELECT n + 1 AS n, _timestamp FROM input"), sink(), parallelism=2),
        ),
        (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE, ("n",)),),
    )
    connector = MemoryConnector({("t", 0): ListSource(batches(10, 500, 2500)), ("t", 1): ListSource(batches(3000))})
    execution, reporter = execution_of(program, connector, engine=engine)
    await execution.run()
    assert not reporter.failed
    parts = [set(connector.sinks["out", subtask].numbers) for subtask in range(2)]
    assert parts[0] and parts[1] and not parts[0] & parts[1]
    arrived = sorted(number for subtask in range(2) for number in connector.sinks["out", subtask].numbers)
    assert arrived == sorted([2 * number + 1 for number in range(0, 3010, 3)] + [2 * n + 1 for n in range(0, 3000, 3)])


async def test_a_union_of_a_table_with_itself_has_every_row_twice() -> None:
    edge = Edge(NodeKey("a"), NodeKey("b"))
    program = Program((node("a", source()), node("b", sink())), (edge, edge))
    connector = MemoryConnector({("t", 0): ListSource(batches(5))})
    execution, _ = execution_of(program, connector)
    await execution.run()
    assert sorted(connector.sinks["out", 0].numbers) == sorted([*range(5), *range(5)])


async def test_small_batches_are_coalesced_and_large_ones_cut() -> None:
    gate = asyncio.Event()
    connector = MemoryConnector(
        {("t", 0): ListSource(batches(*[1] * 900, 2500))}, make_sink=lambda: CollectingSink(gate=gate)
    )
    execution, _ = execution_of(CHAIN, connector)
    running = asyncio.create_task(execution.run())
    await eventually(lambda: _async(execution.metrics[0].queued_rows >= 850))
    gate.set()
    await running
    written = [batch.num_rows for batch in connector.sinks["out", 0].written if batch is not None]
    assert sum(written) == 3400
    assert max(written) <= 1000
    assert len(written) < 20


async def test_a_lone_row_is_written_and_visible_without_waiting_for_others() -> None:
    connector = MemoryConnector({("t", 0): ListSource(batches(1), ends=False)})
    execution, _ = execution_of(
        CHAIN, connector, pace=Pace(batch_rows=1000, channel_rows=2000, linger_seconds=60, flush_seconds=60)
    )
    running = asyncio.create_task(execution.run())
    await eventually(lambda: _async(("out", 0) in connector.sinks and connector.sinks["out", 0].visible == 1))
    execution.stop()
    await running


async def test_rows_become_visible_while_a_stream_never_pauses() -> None:
    class Endless:
        partitions = 1

        async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch:
            await asyncio.sleep(0)
            return SourceBatch(rows(range(900)))

        def partition_name(self, partition: int) -> str:
            return str(partition)

        def positions(self) -> Mapping[str, bytes]:
            return {}

        async def close(self) -> None: ...

    connector = MemoryConnector({("t", 0): Endless()})
    execution, _ = execution_of(
        CHAIN, connector, pace=Pace(batch_rows=1000, channel_rows=2000, linger_seconds=0, flush_seconds=0.02)
    )
    running = asyncio.create_task(execution.run())
    await eventually(lambda: _async(("out", 0) in connector.sinks and connector.sinks["out", 0].visible > 0))
    running.cancel()
    await asyncio.wait([running])
    assert connector.sinks["out", 0].closed


async def test_a_slow_sink_holds_its_source_back_and_shows_as_backpressure() -> None:
    gate = asyncio.Event()
    reads = 0

    class Endless:
        partitions = 1

        async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0)
            return SourceBatch(rows(range(500)))

        def partition_name(self, partition: int) -> str:
            return str(partition)

        def positions(self) -> Mapping[str, bytes]:
            return {}

        async def close(self) -> None: ...

    program = Program((node("a", source()), node("b", sink())), (Edge(NodeKey("a"), NodeKey("b")),))
    connector = MemoryConnector({("t", 0): Endless()}, make_sink=lambda: CollectingSink(gate=gate))
    execution, _ = execution_of(program, connector)
    running = asyncio.create_task(execution.run())
    upstream, downstream = execution.metrics
    await eventually(lambda: _async(min(upstream.backpressure.share(), downstream.backpressure.share()) > 0.9), 20)
    assert reads <= 30  # each of the places that hold rows holds 1,000 or 2,000
    assert upstream.queued_rows <= 2000
    assert downstream.queued_rows <= 2000
    held = reads
    gate.set()
    await eventually(lambda: _async(reads > 2 * held))
    running.cancel()
    await asyncio.wait([running])


async def test_the_first_failure_is_reported_once_and_ends_everything() -> None:
    program = Program(
        (node("a", source(), parallelism=2), node("b", sink(), parallelism=2)), (Edge(NodeKey("a"), NodeKey("b")),)
    )
    sources = {("t", subtask): ListSource(batches(10, 10), ends=False) for subtask in range(2)}
    connector = MemoryConnector(sources, make_sink=lambda: CollectingSink(fails_at=0))
    execution, reporter = execution_of(program, connector)
    await execution.run()
    ((task, error),) = reporter.failed
    assert task.node == "b"
    assert error.domain is ErrorDomain.INTERNAL
    assert error.message == "OSError: the disk is full"
    assert reporter.finished == []
    assert execution.states[task] is TaskState.FAILED
    assert all(one.closed for one in sources.values())
    assert all(one.closed for one in connector.sinks.values())


async def test_an_error_of_the_project_keeps_its_domain_and_hint() -> None:
    class Refusing(ListSource):
        async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
            raise UserError("bad row at f:1", hint="drop it")

    execution, reporter = execution_of(CHAIN, MemoryConnector({("t", 0): Refusing([])}))
    await execution.run()
    assert [(str(error), error.domain) for _, error in reporter.failed] == [
        ("bad row at f:1 (hint: drop it)", ErrorDomain.USER)
    ]


async def test_a_query_that_fails_on_a_row_is_the_users_error(engine: Engine) -> None:
    program = Program((node("a", source(), value("SELECT 1 DIV n AS n, _timestamp FROM input"), sink()),), ())
    execution, reporter = execution_of(program, MemoryConnector({("t", 0): ListSource(batches(5))}), engine=engine)
    await execution.run()
    assert [(error.domain, error.retry) for _, error in reporter.failed] == [(ErrorDomain.USER, RetryHint.NEVER)]


async def test_a_lost_engine_fails_the_job_at_once_to_be_tried_again() -> None:
    lost = PassingEngine()
    execution, reporter = execution_of(CHAIN, MemoryConnector({("t", 0): ListSource([], ends=False)}), engine=lost)
    running = asyncio.create_task(execution.run())
    await eventually(lambda: _async(bool(reporter.started)))
    lost.lose(EngineLost("the JVM ended"))
    async with asyncio.timeout(5):
        await running
    assert [(task.node, error.retry) for task, error in reporter.failed] == [("a", RetryHint.BACKOFF)]


async def test_a_graceful_stop_delivers_what_was_read() -> None:
    program = Program(
        (node("a", source(), parallelism=2), node("b", sink(), parallelism=1)),
        (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE),),
    )
    gate = asyncio.Event()
    sources = {("t", subtask): ListSource(batches(10, 10), ends=False) for subtask in range(2)}
    connector = MemoryConnector(sources, make_sink=lambda: CollectingSink(gate=gate))
    execution, reporter = execution_of(program, connector)
    running = asyncio.create_task(execution.run())
    await eventually(lambda: _async(sum(one.rows_in for one in execution.metrics[:2]) == 40))
    execution.stop()
    execution.stop()
    gate.set()
    async with asyncio.timeout(5):
        await running
    assert sorted(connector.sinks["out", 0].numbers) == sorted([*range(20), *range(20)])
    assert len(reporter.finished) == 3


async def test_a_stop_before_the_start_ends_a_job_without_rows() -> None:
    execution, reporter = execution_of(CHAIN, MemoryConnector({("t", 0): ListSource(batches(10), ends=False)}))
    execution.stop()
    async with asyncio.timeout(5):
        await execution.run()
    assert reporter.finished == [TaskId(NodeKey("a"), 0)]


async def test_cancelling_ends_a_blocked_job_and_closes_everything() -> None:
    sources = {("t", 0): ListSource(batches(10, 10), ends=False)}
    connector = MemoryConnector(sources, make_sink=lambda: CollectingSink(gate=asyncio.Event()))
    execution, reporter = execution_of(CHAIN, connector)
    running = asyncio.create_task(execution.run())
    await eventually(lambda: _async(bool(reporter.started)))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sources["t", 0].closed
    assert connector.sinks["out", 0].closed
    assert not reporter.failed
    assert not reporter.finished


async def test_dead_letters_go_along_their_own_edge() -> None:
    letter = pa.record_batch([["t"], ["f:1"], ["broken"], [b"{"], [0]], schema=DEAD_LETTERS)
    program = Program(
        (node("a", source(), sink()), node("b", sink("dead", DEAD_LETTERS))),
        (Edge(NodeKey("a"), NodeKey("b"), output=Output.DEAD_LETTERS),),
    )
    connector = MemoryConnector({("t", 0): ListSource([SourceBatch(rows([1, 2]), 3, letter), *batches(1)])})
    execution, reporter = execution_of(program, connector)
    await execution.run()
    assert connector.sinks["out", 0].numbers == [1, 2, 0]
    assert [batch for batch in connector.sinks["dead", 0].written if batch is not None] == [letter]
    assert execution.metrics[0].bad_rows == 3
    assert len(reporter.finished) == 2


async def test_metrics_count_what_went_in_and_out(engine: Engine) -> None:
    program = Program(
        (node("a", source(), value("SELECT * FROM input WHERE n < 10"), sink()),),
        (),
    )
    execution, _ = execution_of(program, MemoryConnector({("t", 0): ListSource(batches(100))}), engine=engine)
    await execution.run()
    message = execution.metrics[0].to_proto()
    assert (message.rows_in, message.rows_out, message.batches_in, message.batches_out) == (100, 10, 1, 1)
    assert message.bytes_in == 1600
    assert message.bytes_out >= 160
    assert sum(message.latency.counts) == 10
    assert message.latency.counts[-1] == 10  # event times of 1970


async def test_an_edge_to_a_subtask_that_nobody_has_is_refused() -> None:
    program = Program((node("a", source()), node("b", sink())), (Edge(NodeKey("a"), NodeKey("b")),))
    tasks = [TaskId(NodeKey("a"), 0)]
    with pytest.raises(InternalError, match=r"a\[0\] and b\[0\] are connected, but no worker has b"):
        Execution(assignment(program, tasks), surroundings(MemoryConnector()), MemoryReporter())


async def test_a_shuffle_by_keys_without_a_query_is_refused() -> None:
    program = Program(
        (node("a", source()), node("b", sink(), parallelism=2)),
        (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE, ("n",)),),
    )
    execution, reporter = execution_of(program, MemoryConnector({("t", 0): ListSource([])}))
    await execution.run()
    assert [type(error) for _, error in reporter.failed] == [InternalError]


async def test_secrets_are_filled_in_when_a_table_is_opened_and_missed_by_name() -> None:
    program = Program((node("a", source(options={"url": "x://{{ TOKEN }}@h"}), sink()),), ())
    connector = MemoryConnector({("t", 0): ListSource([])})
    reporter = MemoryReporter()
    await Execution(assignment(program), surroundings(connector, environment={"TOKEN": "s3cret"}), reporter).run()
    assert connector.opened[0].options == {"url": "x://s3cret@h"}
    assert connector.opened[0].schema == SCHEMA
    await Execution(assignment(program), surroundings(connector), reporter).run()
    ((_, error),) = reporter.failed
    assert error.domain is ErrorDomain.USER
    assert "TOKEN" in error.message


async def _async(condition: bool) -> bool:
    return condition


async def test_real_connectors_run_a_query_from_impulse_to_a_file(engine: Engine, tmp_path: Path) -> None:
    impulse = pa.schema([pa.field("counter", pa.int64(), nullable=False), SCHEMA.field(1)])
    squares = pa.schema([("square", pa.int64()), SCHEMA.field(1)])
    path = tmp_path / "squares.json"
    counters = ConnectorSource("impulse", "counters", {"message_count": "1000"}, {})
    query = value("SELECT counter * counter AS square, _timestamp FROM input WHERE counter % 10 = 0", squares)
    file = ConnectorSink("single_file", "squares", {"path": "{{ FOLDER }}/squares.json"}, squares)
    program = Program(
        (
            node("a", Operator(OperatorKey("s"), "", counters, impulse), query, parallelism=2),
            node("b", Operator(OperatorKey("f"), "", file, None)),
        ),
        (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE),),
    )
    reporter = MemoryReporter()
    around = replace(
        surroundings(MemoryConnector(), engine=engine, environment={"FOLDER": str(tmp_path)}), connectors=CONNECTORS
    )
    execution = Execution(assignment(program), around, reporter)
    await execution.run()
    assert not reporter.failed
    lines = await asyncio.to_thread(path.read_text)
    assert sorted(json.loads(line)["square"] for line in lines.splitlines()) == [n * n for n in range(0, 1000, 10)]
    assert execution.metrics[-1].rows_out == 100
