from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from penstock.common.errors import InternalError, NotFound
from penstock.common.ids import Generation, WorkerId
from penstock.common.program import Operator, Program
from penstock.common.testing import eventually
from penstock.connectors.base import SourceBatch
from penstock.worker.operators.base import ChainOperator, Planner
from penstock.worker.preview import PreviewOutput
from penstock.worker.state.budget import Budget
from penstock.worker.testing import (
    SCHEMA,
    TEST_PACE,
    ListSource,
    MemoryConnector,
    MemoryReporter,
    PassingEngine,
    assignment,
    node,
    rows,
    sink,
    source,
)
from penstock.worker.testing_operators import Operators, latest
from penstock.worker.wiring import TaskId
from penstock.worker.worker import StopMode, Tools, Worker

CHAIN = Program((node("a", source(), sink()),), ())


def endless() -> tuple[Worker, MemoryReporter, MemoryConnector]:
    connector = MemoryConnector({("t", 0): ListSource([SourceBatch(rows([1, 2]))], ends=False)})
    reporter = MemoryReporter()
    tools = Tools(PassingEngine(), {"memory": connector}, {}, TEST_PACE)
    return Worker(WorkerId.new(), tools, lambda _job: reporter), reporter, connector


async def started(reporter: MemoryReporter) -> bool:
    return bool(reporter.started)


@pytest.mark.parametrize("mode", StopMode)
async def test_a_stopped_job_is_reported_as_ended_in_either_mode(mode: StopMode) -> None:
    worker, reporter, connector = endless()
    job = assignment(CHAIN)
    running = asyncio.create_task(worker.run())
    worker.start(job)
    worker.start(job)  # the call can be repeated
    await eventually(lambda: started(reporter))
    worker.stop(job.job.id, job.job.generation, mode)
    async with asyncio.timeout(5):
        await running
    assert reporter.ended
    assert not reporter.failed
    assert len(reporter.finished) == (1 if mode is StopMode.GRACEFUL else 0)
    assert connector.sinks["out", 0].closed
    if mode is StopMode.GRACEFUL:
        assert connector.sinks["out", 0].numbers == [1, 2]


async def test_a_stop_at_once_that_comes_before_the_job_runs_is_not_lost() -> None:
    worker, reporter, _ = endless()
    job = assignment(CHAIN)
    worker.start(job)
    worker.stop(job.job.id, job.job.generation, StopMode.IMMEDIATE)
    async with asyncio.timeout(5):
        await worker.run()
    assert reporter.ended


async def test_a_fenced_worker_ends_without_a_report() -> None:
    worker, reporter, _ = endless()
    running = asyncio.create_task(worker.run())
    worker.start(assignment(CHAIN))
    await eventually(lambda: started(reporter))
    worker.fence()
    async with asyncio.timeout(5):
        await running
    assert not reporter.ended
    assert not reporter.failed


async def test_a_fenced_standby_ends_and_takes_no_job() -> None:
    worker, _, _ = endless()
    worker.fence()
    async with asyncio.timeout(5):
        await worker.run()
    with pytest.raises(InternalError, match="not free"):
        worker.start(assignment(CHAIN))


async def test_a_second_job_and_a_stop_of_another_generation_are_refused() -> None:
    worker, _, _ = endless()
    job = assignment(CHAIN)
    worker.start(job)
    with pytest.raises(InternalError, match="not free"):
        worker.start(assignment(CHAIN))
    with pytest.raises(NotFound):
        worker.stop(job.job.id, Generation(2), StopMode.IMMEDIATE)


async def test_preview_rows_are_lines_of_json_in_pieces() -> None:
    reporter = MemoryReporter()
    output = PreviewOutput(reporter, "out", TaskId(CHAIN.nodes[0].key, 3))
    await output.send(rows(range(200_000)))
    assert len(reporter.output) > 1
    assert sum(piece.rows for piece in reporter.output) == 200_000
    assert b"".join(piece.lines for piece in reporter.output).startswith(b'{"n":0}\n{"n":1}\n')
    assert {(piece.table, piece.subtask) for piece in reporter.output} == {("out", 3)}
    assert all(piece.lines.count(b"\n") == piece.rows for piece in reporter.output)


async def test_state_of_a_query_that_names_no_time_to_live_gets_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    lives: list[int] = []

    async def open_operator(
        operator: Operator, schema: pa.Schema, planner: Planner, *, updating_ttl_ms: int, budget: Budget
    ) -> ChainOperator:
        lives.append(updating_ttl_ms)
        return await Operators().open(operator, schema, planner)

    monkeypatch.setattr("penstock.worker.worker.open_operator", open_operator)
    connector = MemoryConnector({("t", 0): ListSource([SourceBatch(rows([1, 2]))])})
    tools = Tools(PassingEngine(), {"memory": connector}, {}, TEST_PACE, updating_ttl_ms=500)
    worker = Worker(WorkerId.new(), tools, lambda _job: MemoryReporter())
    worker.start(assignment(Program((node("a", source(), latest(SCHEMA), sink()),), ())))
    await worker.run()
    assert (lives, connector.sinks["out", 0].numbers) == ([500], [1, 2])
