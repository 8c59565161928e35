"""The controller with real Postgres and NATS, and workers that speak the real protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from structlog.testing import capture_logs

from penstock.common import subjects
from penstock.common.bus import Bus, NatsSettings
from penstock.common.config import load_config
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.embedded import EmbeddedPostgres
from penstock.common.errors import FencedError, NotFound, UserError
from penstock.common.ids import JobId, PipelineId
from penstock.common.jobs import JobState
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto import worker_pb2
from penstock.common.proto.controller_pb2_grpc import ControllerServiceStub
from penstock.common.rpc import calling, connect
from penstock.common.testing import eventually
from penstock.controller.records import TaskId
from penstock.controller.service import Serving
from penstock.controller.testing import (
    FakeWorkers,
    TransientFault,
    pipeline_program,
    quick_settings,
    rpc_settings,
    running_controller,
)
from penstock.controller.testing_desired import Desired

if TYPE_CHECKING:
    from penstock.common.proto.controller_pb2_grpc import ControllerServiceAsyncStub

IN = TaskId(pipeline_program().nodes[0].key, 0)


async def reaches(desired: Desired, job: JobId, state: JobState, within_seconds: float = 10) -> None:
    try:
        await eventually(lambda: desired.is_in(job, state), within_seconds)
    except TimeoutError:
        raise AssertionError(f"{await desired.status(job)} after {await desired.path(job)}") from None


async def all_end(workers: FakeWorkers) -> None:
    async def ended() -> bool:
        return not workers.alive

    await eventually(ended)


@asynccontextmanager
async def stub_of(serving: Serving) -> AsyncIterator[ControllerServiceAsyncStub]:
    async with connect(f"127.0.0.1:{serving.rpc_port}", rpc_settings()) as channel:
        yield ControllerServiceStub(channel)


@pytest.fixture
async def controller(pool: Pool, bus: Bus, workers: FakeWorkers) -> AsyncIterator[Serving]:
    async with running_controller(pool, bus, quick_settings(), workers) as serving:
        yield serving


async def test_a_job_runs_and_finishes(desired: Desired, controller: Serving, workers: FakeWorkers) -> None:
    job = await desired.create(parallelism=2)
    await reaches(desired, job, JobState.RUNNING)
    assert {str(task) for task in workers.all[0].tasks} == {"in/0", "in/1", "out/0", "out/1"}
    await workers.all[0].finish(rows=7)
    await reaches(desired, job, JobState.FINISHED)
    assert await desired.path(job) == ["compiling", "scheduling", "running", "finishing", "finished"]
    status = await desired.status(job)
    assert (status["generation"], status["parallelism"], status["tasks"]) == (1, 2, 4)
    assert status["started_at"] <= status["finished_at"]
    await all_end(workers)


async def test_metrics_are_answered_after_the_job_finished(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await workers.all[0].finish(rows=7)
    await reaches(desired, job, JobState.FINISHED)
    async with stub_of(controller) as stub, calling(rpc_settings()):
        answer = await stub.JobMetrics(proto.JobMetricsRequest(job_id=job))
    assert [(each.node_id, each.rows_out) for each in answer.subtasks] == [("in", 7), ("out", 7)]


async def test_a_job_that_does_not_exist_has_no_metrics_and_no_output(controller: Serving) -> None:
    async with stub_of(controller) as stub:
        with pytest.raises(NotFound):
            async with calling(rpc_settings()):
                await stub.JobMetrics(proto.JobMetricsRequest(job_id=JobId.new()))
        with pytest.raises(NotFound):
            async with calling(rpc_settings()):
                async for _ in stub.SubscribeToOutput(proto.SubscribeToOutputRequest(job_id=JobId.new())):
                    raise AssertionError


@pytest.mark.parametrize(
    ("mode", "asked", "state"),
    [
        ("graceful", [worker_pb2.STOP_MODE_GRACEFUL], "stopping"),
        ("immediate", [worker_pb2.STOP_MODE_IMMEDIATE], "stopping"),
        ("force", [], "stopping"),
        ("checkpoint", [worker_pb2.STOP_MODE_GRACEFUL], "checkpoint_stopping"),
    ],
)
async def test_a_job_stops_as_asked_and_can_run_again(
    desired: Desired, controller: Serving, workers: FakeWorkers, mode: str, asked: list[int], state: str
) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await desired.update(job, stop_mode=mode)
    await reaches(desired, job, JobState.STOPPED)
    assert workers.all[0].stops == asked
    assert (await desired.path(job))[-2:] == [state, "stopped"]
    await desired.update(job, stop_mode="none")
    await reaches(desired, job, JobState.RUNNING)
    assert (await desired.status(job))["generation"] == 2
    assert len(workers.alive) == 1


async def test_a_graceful_stop_can_be_made_a_forced_one(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    workers.obeys = False
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await desired.update(job, stop_mode="graceful")
    await reaches(desired, job, JobState.STOPPING)
    await desired.update(job, stop_mode="force")
    await reaches(desired, job, JobState.STOPPED)
    await all_end(workers)


async def test_a_mistake_of_the_user_fails_the_job_and_a_restart_runs_it_again(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await workers.all[0].report_failed(IN, UserError("line 3 is not JSON", hint="set bad_data"))
    await reaches(desired, job, JobState.FAILED)
    status = await desired.status(job)
    assert (status["error_message"], status["error_hint"]) == ("line 3 is not JSON", "set bad_data")
    assert status["error_domain"] == "user"
    (event,) = await desired.events(job, "error")
    assert (event["node_key"], event["subtask"], event["message"]) == ("in", 0, "line 3 is not JSON")
    await all_end(workers)
    await desired.update(job, restart_nonce=1)
    await reaches(desired, job, JobState.RUNNING)
    assert (await desired.status(job))["error_message"] is None


async def test_a_fault_that_may_pass_is_recovered_from(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await workers.all[0].report_failed(IN, TransientFault("the broker is away"))
    await eventually(lambda: runs_as(desired, job, 2))
    assert (await desired.status(job))["restarts"] == 1
    assert len(workers.alive) == 1


async def runs_as(desired: Desired, job: JobId, generation: int) -> bool:
    status = await desired.status(job)
    return (status["state"], status["generation"]) == ("running", generation)


async def test_a_worker_that_dies_is_replaced(desired: Desired, controller: Serving, workers: FakeWorkers) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await workers.all[0].crash()
    await eventually(lambda: runs_as(desired, job, 2))
    (event,) = await desired.events(job, "error")
    assert event["message"].startswith(f"lost worker {workers.all[0].id}")


async def test_restarts_have_a_budget(pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers) -> None:
    async with running_controller(pool, bus, quick_settings(max_restarts="1"), workers):
        job = await desired.create()
        await reaches(desired, job, JobState.RUNNING)
        await workers.all[0].crash()
        await eventually(lambda: runs_as(desired, job, 2))
        await workers.all[1].crash()
        await reaches(desired, job, JobState.FAILED)
        assert (await desired.status(job))["error_message"].startswith("gave up after 1 restarts: lost worker")


async def test_restarts_are_forgotten_once_the_job_is_well(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers
) -> None:
    async def is_healed() -> bool:
        status = await desired.status(job)
        return (status["generation"], status["restarts"]) == (2, 0)

    async with running_controller(pool, bus, quick_settings(healthy_after="200ms"), workers):
        job = await desired.create()
        await reaches(desired, job, JobState.RUNNING)
        await workers.all[0].crash()
        await eventually(is_healed)
        assert "recovering" in await desired.path(job)


async def test_a_job_is_rescaled(desired: Desired, controller: Serving, workers: FakeWorkers) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await desired.update(job, parallelism=3)
    await eventually(lambda: runs_as(desired, job, 2))
    status = await desired.status(job)
    assert (status["parallelism"], status["tasks"], status["restarts"]) == (3, 6, 0)
    assert workers.all[0].stops == [worker_pb2.STOP_MODE_GRACEFUL]


@pytest.mark.parametrize(
    ("mode", "asked"), [("safe", worker_pb2.STOP_MODE_GRACEFUL), ("force", worker_pb2.STOP_MODE_IMMEDIATE)]
)
async def test_a_job_is_restarted(
    desired: Desired, controller: Serving, workers: FakeWorkers, mode: str, asked: int
) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await desired.update(job, restart_nonce=1, restart_mode=mode)
    await eventually(lambda: runs_as(desired, job, 2))
    assert workers.all[0].stops == [asked]
    assert (await desired.status(job))["restart_nonce"] == 1


async def test_reports_of_an_old_generation_are_refused(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    old = proto.TaskOwner(job_id=job, generation=1)
    await desired.update(job, restart_nonce=1)
    await eventually(lambda: runs_as(desired, job, 2))
    task = proto.Task(node_id="in")
    worker = workers.all[0].id
    async with stub_of(controller) as stub:
        with pytest.raises(FencedError):
            async with calling(rpc_settings()):
                await stub.TaskFailed(proto.TaskFailedRequest(worker_id=worker, job=old, task=task))
        with pytest.raises(FencedError):
            async with calling(rpc_settings()):
                await stub.RegisterWorker(proto.RegisterWorkerRequest(worker_id=worker, job=old))
        async with calling(rpc_settings()):
            with capture_logs() as logs:
                assert (await stub.Heartbeat(proto.HeartbeatRequest(worker_id=worker, job=old))).fenced
            assert ("call_refused", "Heartbeat") in [(entry["event"], entry.get("method")) for entry in logs]
            current = proto.TaskOwner(job_id=job, generation=2)
            answer = await stub.Heartbeat(proto.HeartbeatRequest(worker_id=workers.all[1].id, job=current))
        assert answer.known and not answer.fenced
    assert await runs_as(desired, job, 2)


async def test_a_deleted_job_ends(desired: Desired, controller: Serving, workers: FakeWorkers) -> None:
    job = await desired.create()
    await reaches(desired, job, JobState.RUNNING)
    await desired.delete(job)
    await asyncio.wait_for(workers.all[0].ended.wait(), 5)


async def test_a_program_that_cannot_be_read_fails_the_job(pool: Pool, desired: Desired, controller: Serving) -> None:
    pipeline, job = PipelineId.new(), JobId.new()
    await pool.execute("INSERT INTO pipelines (id, name, query, program) VALUES ($1, '', '', $2)", pipeline, b"\xff")
    await pool.execute(
        "INSERT INTO job_configs (id, pipeline_id, parallelism, checkpoint_interval_ms) VALUES ($1, $2, 1, 1)",
        job,
        pipeline,
    )
    await reaches(desired, job, JobState.FAILED)
    assert "cannot be read" in (await desired.status(job))["error_message"]


async def test_preview_rows_reach_a_reader_and_the_stream_ends_with_the_job(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create()

    async def read() -> list[bytes]:
        async with stub_of(controller) as stub:
            request = proto.SubscribeToOutputRequest(job_id=job)
            return [data.lines async for data in stub.SubscribeToOutput(request)]

    # Before the controller has even seen the job.
    reading = asyncio.create_task(read())
    await reaches(desired, job, JobState.RUNNING)
    await workers.all[0].send_rows(b'{"value":1}\n', 1)
    await workers.all[0].send_rows(b'{"value":2}\n', 1)
    await workers.all[0].finish()
    assert await asyncio.wait_for(reading, 5) == [b'{"value":1}\n', b'{"value":2}\n']
    assert await asyncio.wait_for(read(), 5) == [b'{"value":1}\n', b'{"value":2}\n']


async def test_state_changes_are_published_in_their_order(
    desired: Desired, bus: Bus, controller: Serving, workers: FakeWorkers
) -> None:
    async with bus.subscribe(subjects.all_jobs(subjects.JobTopic.STATE)) as messages:
        job = await desired.create()
        seen = []
        async with asyncio.timeout(5):
            async for message in messages:
                event = json.loads(message.data)
                if event["job_id"] == job:
                    seen.append((event["from_state"], event["to_state"], event["generation"]))
                if event["to_state"] == "running":
                    break
    assert seen == [("created", "compiling", 0), ("compiling", "scheduling", 1), ("scheduling", "running", 1)]


async def test_a_wake_up_is_acted_on_before_the_next_poll(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers
) -> None:
    async with running_controller(pool, bus, quick_settings(poll_interval="1h"), workers):
        job = await desired.create()
        bus.publish(subjects.job_desired(job), b"{}")
        await reaches(desired, job, JobState.RUNNING)


async def test_a_job_starts_without_nats(pool: Pool, desired: Desired, workers: FakeWorkers) -> None:
    settings = load_config(environment={"PENSTOCK__NATS__CONNECT_TIMEOUT": "100ms"}).section("nats", NatsSettings)
    bus = await Bus.connect("nats://127.0.0.1:1", settings)
    try:
        async with running_controller(pool, bus, quick_settings(), workers):
            job = await desired.create()
            await reaches(desired, job, JobState.RUNNING)
    finally:
        await bus.close()


async def test_a_running_job_is_adopted_by_the_next_controller(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers
) -> None:
    settings = quick_settings()
    async with running_controller(pool, bus, settings, workers) as first:
        job = await desired.create(parallelism=2)
        await reaches(desired, job, JobState.RUNNING)
        worker = workers.all[0]
        # As a worker of a node does, it outlives its controller.
        worker.is_detached = True
    again = settings.model_copy(update={"rpc_port": first.rpc_port})
    async with running_controller(pool, bus, again, workers) as second, stub_of(second) as stub:

        async def is_known() -> bool:
            request = proto.HeartbeatRequest(worker_id=worker.id, job=worker.owner)
            async with calling(rpc_settings()):
                answer = await stub.Heartbeat(request)
            return answer.known and not answer.fenced

        await eventually(is_known)
        await desired.update(job, stop_mode="graceful")
        await reaches(desired, job, JobState.STOPPED)
    assert await desired.path(job) == ["compiling", "scheduling", "running", "stopping", "stopped"]
    assert worker.stops == [worker_pb2.STOP_MODE_GRACEFUL]


async def test_a_running_job_whose_workers_do_not_come_back_is_recovered(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers
) -> None:
    settings = quick_settings(adopt_timeout="200ms")
    async with running_controller(pool, bus, settings, workers):
        job = await desired.create()
        await reaches(desired, job, JobState.RUNNING)
    async with running_controller(pool, bus, settings, workers):
        await eventually(lambda: runs_as(desired, job, 2))
    (event,) = await desired.events(job, "error")
    assert event["message"] == "2 of 2 tasks did not come back after a controller restart"


async def test_nodes_workers_and_figures_can_be_looked_at(
    pool: Pool, desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(parallelism=2)
    await reaches(desired, job, JobState.RUNNING)

    async def is_mirrored() -> bool:
        row = await pool.fetchrow("SELECT job_id, generation, tasks FROM workers WHERE id = $1", workers.all[0].id)
        return row is not None and tuple(row) == (job, 1, 4)

    await eventually(is_mirrored)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{controller.admin_port}") as client:
        assert (await client.get("/status")).status_code == 200
        figures = (await client.get("/metrics")).text
    assert 'penstock_controller_jobs{state="running"} 1.0' in figures
    assert 'penstock_controller_transitions_total{state="running"} 1.0' in figures


async def test_postgres_being_killed_harms_no_job_and_loses_nothing(
    tmp_path: Path, bus: Bus, workers: FakeWorkers
) -> None:
    config = load_config(environment={"PENSTOCK__DATABASE__COMMAND_TIMEOUT": "2s"})
    postgres = await EmbeddedPostgres.start(tmp_path, {"fsync": "off"})
    pool = await open_database(postgres.url, config.section("database", DatabaseSettings))
    desired = Desired(pool)
    try:
        await migrate(pool)
        async with running_controller(pool, bus, quick_settings(), workers):
            steady, finishing, recovering = [await desired.create() for _ in range(3)]
            for job in (steady, finishing, recovering):
                await reaches(desired, job, JobState.RUNNING)
            by_job = {worker.owner.job_id: worker for worker in workers.all if worker.owner}
            os.kill(postgres.pid, signal.SIGKILL)
            await postgres.ended.wait()
            await by_job[finishing].finish()
            await by_job[recovering].crash()
            await asyncio.wait_for(by_job[finishing].ended.wait(), 5)
            # The outage is longer than a worker may be silent: the controller goes on listening.
            outage_until = time.monotonic() + 2 * quick_settings().heartbeat_timeout.total_seconds()

            async def is_long_enough() -> bool:
                return time.monotonic() >= outage_until

            await eventually(is_long_enough)
            assert not by_job[steady].ended.is_set()
            postgres = await EmbeddedPostgres.start(tmp_path, {"fsync": "off"})
            await reaches(desired, finishing, JobState.FINISHED)
            await eventually(lambda: runs_as(desired, recovering, 2), 10)
            late = await desired.create()
            await reaches(desired, late, JobState.RUNNING)
            assert await desired.path(finishing) == ["compiling", "scheduling", "running", "finishing", "finished"]
            assert await desired.path(steady) == ["compiling", "scheduling", "running"]
            assert by_job[steady] in workers.alive
    finally:
        pool.terminate()
        await postgres.stop()
