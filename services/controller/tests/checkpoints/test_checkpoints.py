"""Checkpoints with real Postgres, NATS and files, and workers that speak the real protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from penstock.common import subjects
from penstock.common.bus import Bus
from penstock.common.checkpoint.metadata import CorruptSnapshot, read_snapshot, refers
from penstock.common.checkpoint.paths import Epoch, checkpoint_path, epoch_of, metadata_path
from penstock.common.config import load_config
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.embedded import EmbeddedPostgres
from penstock.common.errors import FencedError, UserError
from penstock.common.ids import JobId
from penstock.common.jobs import JobState
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto import worker_pb2
from penstock.common.proto.controller_pb2_grpc import ControllerServiceStub
from penstock.common.rpc import calling, connect
from penstock.common.storage import Storage, open_storage
from penstock.common.testing import eventually
from penstock.controller.service import Serving
from penstock.controller.testing import FakeWorkers, quick_settings, rpc_settings, running_controller
from penstock.controller.testing_desired import Desired

Running = Callable[..., AbstractAsyncContextManager[Serving]]
INTERVAL = 30


def is_true(check: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return check()

    return condition


def folder_of(folder: Path, job: JobId) -> Storage:
    return open_storage(str(folder / job))


async def test_a_job_is_saved_to_its_end_and_each_row_arrives_once(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    workers.stream.length = 150
    job = await desired.create(parallelism=2, interval_ms=INTERVAL)
    await desired.reaches(job, JobState.FINISHED)
    assert await desired.path(job) == ["compiling", "scheduling", "running", "finishing", "finished"]
    workers.stream.check(complete=True)
    rows = await desired.checkpoints(job)
    assert [row["epoch"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) > 2
    assert [row["then_stop"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1]["state"] == "ready"
    snapshot = await read_snapshot(folder_of(folder, job), metadata_path(checkpoint_path(Epoch(len(rows)))))
    assert snapshot.metadata.ended and snapshot.metadata.generation == 1
    assert {operator.operator_id for operator in snapshot.operators} == {"op_in", "op_out"}


async def test_the_history_tells_spans_and_bytes_of_each_subtask(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(parallelism=2, interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job)
    row = next(row for row in await desired.checkpoints(job) if row["state"] in {"ready", "deleted"})
    details = json.loads(row["details"])
    assert [node["node_id"] for node in details["nodes"]] == ["in", "out"]
    source = details["nodes"][0]["subtasks"][1]
    assert source["subtask"] == 1 and source["operators"]["op_in"] > 0
    times = [source[f"{name}_at_us"] for name in ("alignment_started", "started", "frozen", "finished")]
    assert times == sorted(times)
    assert "committed_at_us" in details["nodes"][1]["subtasks"][0]
    assert row["bytes"] == sum(sum(s["operators"].values()) for n in details["nodes"] for s in n["subtasks"])
    assert row["started_at"] <= row["finished_at"]


async def test_checkpoints_are_announced(desired: Desired, bus: Bus, controller: Serving) -> None:
    async with bus.subscribe(subjects.all_jobs(subjects.JobTopic.CHECKPOINT)) as messages:
        job = await desired.create(interval_ms=INTERVAL)
        seen: list[tuple[int, str]] = []
        async with asyncio.timeout(10):
            async for message in messages:
                event = json.loads(message.data)
                if event["job_id"] == job:
                    seen.append((event["epoch"], event["state"]))
                if len(seen) == 4:
                    break
    assert seen == [(1, "inprogress"), (1, "committing"), (1, "ready"), (2, "inprogress")]


async def test_only_what_is_needed_is_kept(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job = await desired.create(parallelism=2, interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job, 6)
    await desired.update(job, stop_mode="checkpoint")
    await desired.reaches(job, JobState.STOPPED)
    storage = folder_of(folder, job)
    last = (await desired.checkpoints(job))[-1]["epoch"]
    snapshot = await read_snapshot(storage, metadata_path(checkpoint_path(Epoch(last))))

    async def is_tidy() -> bool:
        return {info.path async for info in storage.list()} == refers(snapshot)

    await eventually(is_tidy)
    states = [row["state"] for row in await desired.checkpoints(job)]
    assert states == ["deleted"] * (len(states) - 1) + ["ready"]
    # Files of older epochs are among what is needed.
    assert {epoch_of(path) for path in refers(snapshot)} > {Epoch(last)}


async def test_a_worker_that_dies_costs_no_row_and_repeats_none(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    workers.stream.length = 300
    job = await desired.create(parallelism=2, interval_ms=INTERVAL)
    for generation in (1, 2, 3):
        await desired.reaches(job, JobState.RUNNING, generation)
        await desired.saves(job)
        await workers.alive[-1].crash()
    await desired.reaches(job, JobState.FINISHED)
    workers.stream.check(complete=True)
    assert workers.stream.restored[0] == "" and all(workers.stream.restored[1:])
    epochs = [row["epoch"] for row in await desired.checkpoints(job)]
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("heard", ["checkpoints", "commits"])
@pytest.mark.parametrize("nth", [1, 2, 5])
async def test_a_worker_may_die_as_it_hears_of_a_checkpoint_or_a_commit(
    desired: Desired, controller: Serving, workers: FakeWorkers, heard: str, nth: int
) -> None:
    workers.stream.length = 200
    job = await desired.create(interval_ms=5)
    await desired.reaches(job, JobState.RUNNING)
    await eventually(is_true(lambda: len(getattr(workers.all[0], heard)) >= nth))
    await workers.all[0].crash()
    await desired.reaches(job, JobState.FINISHED)
    workers.stream.check(complete=True)


async def test_a_job_is_rescaled_up_and_down_and_goes_on_where_it_was(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    workers.stream.length = 400
    job = await desired.create(parallelism=1, interval_ms=INTERVAL)
    for generation, parallelism in enumerate((2, 3, 1), start=2):
        await desired.reaches(job, JobState.RUNNING, generation - 1)
        await desired.update(job, parallelism=parallelism)
        await desired.reaches(job, JobState.RUNNING, generation)
        workers.stream.check()
        assert (await desired.status(job))["restarts"] == 0
    await desired.reaches(job, JobState.FINISHED)
    workers.stream.check(complete=True)
    assert all(not worker.stops for worker in workers.all)


async def test_a_job_that_is_stopped_with_a_checkpoint_resumes_where_it_was(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(parallelism=2, interval_ms=3_600_000)
    await desired.reaches(job, JobState.RUNNING)
    await desired.update(job, stop_mode="checkpoint")
    await desired.reaches(job, JobState.STOPPED)
    assert (await desired.path(job))[-2:] == ["checkpoint_stopping", "stopped"]
    workers.stream.check()
    seen = workers.stream.rows_seen()
    assert not workers.stream.staged
    await desired.update(job, stop_mode="none")
    await desired.reaches(job, JobState.RUNNING, 2)
    await desired.update(job, stop_mode="checkpoint")
    await desired.reaches(job, JobState.STOPPED, 2)
    workers.stream.check()
    assert workers.stream.rows_seen() > seen
    assert [row["epoch"] for row in await desired.checkpoints(job)] == [1, 2]


async def test_a_graceful_stop_lets_sources_end_and_saves_what_arrived(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job = await desired.create(interval_ms=3_600_000)
    await desired.reaches(job, JobState.RUNNING)
    await desired.update(job, stop_mode="graceful")
    await desired.reaches(job, JobState.STOPPED)
    assert workers.all[0].stops == [worker_pb2.STOP_MODE_GRACEFUL]
    snapshot = await read_snapshot(folder_of(folder, job), metadata_path(checkpoint_path(Epoch(1))))
    # When it is started again there is more to read.
    assert not snapshot.metadata.ended
    seen = workers.stream.rows_seen()
    assert seen > 0
    await desired.update(job, stop_mode="none")
    await desired.reaches(job, JobState.RUNNING, 2)
    await desired.update(job, stop_mode="graceful")
    await desired.reaches(job, JobState.STOPPED, 2)
    workers.stream.check()
    assert workers.stream.rows_seen() > seen


@pytest.mark.parametrize("mode", ["immediate", "force"])
async def test_a_job_that_is_stopped_at_once_goes_on_from_its_last_checkpoint(
    desired: Desired, controller: Serving, workers: FakeWorkers, mode: str
) -> None:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job)
    await desired.update(job, stop_mode=mode)
    await desired.reaches(job, JobState.STOPPED)
    await desired.update(job, stop_mode="none")
    await desired.reaches(job, JobState.RUNNING, 2)
    await desired.saves(job)
    workers.stream.check()
    assert workers.stream.restored[1].startswith("checkpoints/checkpoint-")


async def test_a_checkpoint_stop_can_be_made_a_forced_one(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    workers.obeys = False
    job = await desired.create(interval_ms=3_600_000)
    await desired.reaches(job, JobState.RUNNING)
    await desired.update(job, stop_mode="checkpoint")
    await eventually(is_true(lambda: bool(workers.all[0].checkpoints)))
    assert workers.all[0].checkpoints[0].then_stop
    await desired.reaches(job, JobState.CHECKPOINT_STOPPING)
    await desired.update(job, stop_mode="force")
    await desired.reaches(job, JobState.STOPPED)
    (row,) = await desired.checkpoints(job)
    assert row["state"] == "abandoned"


async def test_a_safe_restart_saves_first_and_a_forced_one_does_not(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(interval_ms=3_600_000)
    await desired.reaches(job, JobState.RUNNING)
    await desired.update(job, restart_nonce=1, restart_mode="safe")
    await desired.reaches(job, JobState.RUNNING, 2)
    (first,) = await desired.checkpoints(job)
    assert first["then_stop"] and workers.stream.rows_seen() > 0
    seen = workers.stream.rows_seen()
    await desired.update(job, restart_nonce=2, restart_mode="force")
    await desired.reaches(job, JobState.RUNNING, 3)
    assert len(await desired.checkpoints(job)) == 1 and workers.stream.rows_seen() == seen
    assert workers.stream.restored == ["", *[metadata_path(checkpoint_path(Epoch(1)))] * 2]


async def test_a_restart_can_begin_without_state(desired: Desired, controller: Serving, workers: FakeWorkers) -> None:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job)
    await desired.update(job, restart_nonce=1, ignore_state_nonce=1, restart_mode="force")
    await desired.reaches(job, JobState.RUNNING, 2)
    assert workers.stream.restored == ["", ""]
    await desired.saves(job)
    await workers.alive[-1].crash()
    await desired.reaches(job, JobState.RUNNING, 3)
    assert workers.stream.restored[2]
    epochs = [row["epoch"] for row in await desired.checkpoints(job)]
    assert epochs == sorted(set(epochs))


async def test_a_failed_job_that_is_restarted_goes_on_from_its_last_checkpoint(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job)
    await workers.all[0].report_failed(workers.all[0].tasks[0], UserError("line 3 is not JSON"))
    await desired.reaches(job, JobState.FAILED)
    await desired.update(job, restart_nonce=1)
    await desired.reaches(job, JobState.RUNNING, 2)
    await desired.saves(job)
    workers.stream.check()
    assert workers.stream.restored[1]


async def test_a_preview_has_no_checkpoints(desired: Desired, controller: Serving, workers: FakeWorkers) -> None:
    job = await desired.create(interval_ms=1, preview=True)
    await desired.reaches(job, JobState.RUNNING)
    assert workers.all[0].execution is not None and not workers.all[0].execution.HasField("checkpoints")
    savepoint = await desired.want_savepoint(job, "never")
    await desired.savepoint_reaches(savepoint, "failed")
    await workers.all[0].finish()
    await desired.reaches(job, JobState.FINISHED)
    assert await desired.checkpoints(job) == []


async def test_what_a_task_cannot_write_is_told_and_the_job_goes_on(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    workers.stream.length = 200
    workers.stream.refused = {2, 3}
    job = await desired.create(parallelism=2, interval_ms=INTERVAL)
    await desired.reaches(job, JobState.FINISHED)
    workers.stream.check(complete=True)
    rows = {row["epoch"]: row for row in await desired.checkpoints(job)}
    assert [rows[epoch]["state"] for epoch in (2, 3)] == ["abandoned"] * 2
    assert rows[2]["error"] == "the disk is full"
    warnings = [event["message"] for event in await desired.events(job, "warning")]
    assert warnings == [f"checkpoint {epoch} was abandoned: the disk is full" for epoch in (2, 3)]


async def test_too_many_failures_in_a_row_fail_the_job(
    desired: Desired, running: Running, workers: FakeWorkers
) -> None:
    workers.stream.refused = {2, 3}
    async with running(max_failures="2"):
        job = await desired.create(interval_ms=INTERVAL)
        await desired.reaches(job, JobState.FAILED)
        assert (await desired.status(job))["error_message"] == "2 checkpoints in a row failed: the disk is full"
        workers.stream.check()


async def test_a_checkpoint_that_takes_too_long_is_abandoned(
    desired: Desired, running: Running, workers: FakeWorkers
) -> None:
    workers.obeys = False
    async with running(timeout="100ms", max_failures="100"):
        job = await desired.create(interval_ms=INTERVAL)
        await desired.reaches(job, JobState.RUNNING)

        async def is_abandoned() -> bool:
            return any(row["state"] == "abandoned" for row in await desired.checkpoints(job))

        await eventually(is_abandoned)
        workers.all[0].obeys = True
        await desired.saves(job)
        workers.stream.check()
        assert await desired.is_in(job, JobState.RUNNING)


async def test_storage_that_cannot_be_written_fails_checkpoints_and_not_the_job(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job = await desired.create(interval_ms=3_600_000)
    await desired.reaches(job, JobState.RUNNING)
    # Where the next checkpoint's metadata would be is a folder.
    (folder / job / "checkpoints" / "checkpoint-0000001" / "metadata").mkdir(parents=True)
    await desired.update(job, checkpoint_interval_ms=INTERVAL)
    await desired.saves(job, 1)
    rows = await desired.checkpoints(job)
    assert rows[0]["state"] == "abandoned" and "checkpoint-0000001/metadata" in rows[0]["error"]
    workers.stream.check()


async def test_commits_are_sent_again_until_a_sink_answers(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job)
    worker = workers.all[0]
    worker.commits_arrive = False
    lost = len(worker.commits)
    await eventually(is_true(lambda: len(worker.commits) > lost))
    worker.commits_arrive = True
    epoch = worker.commits[-1].epoch
    await eventually(is_true(lambda: [each.epoch for each in worker.commits].count(epoch) > 1), 10)
    await desired.saves(job)
    workers.stream.check()


async def test_a_restored_checkpoint_that_was_not_committed_is_once_its_tasks_have_started(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    worker = workers.all[0]
    worker.commits_arrive = False
    await eventually(is_true(lambda: bool(worker.commits)))
    await desired.update(job, checkpoint_interval_ms=3_600_000)
    await worker.crash()
    await desired.reaches(job, JobState.RUNNING, 2)

    async def is_ready() -> bool:
        # One that was committed before the commits stopped to arrive may be ahead of it.
        states = [row["state"] for row in await desired.checkpoints(job)]
        return states[-1] == "ready" and "committing" not in states

    await eventually(is_ready)
    assert workers.stream.rows_seen() > 0
    workers.stream.check()


@pytest.mark.parametrize("file", ["metadata", "operator-op_in/metadata", "operator-op_in/table-offsets-000"])
async def test_a_damaged_checkpoint_is_named_and_not_passed_over(
    desired: Desired, controller: Serving, folder: Path, file: str
) -> None:
    job, damaged = await stopped_and_damaged(desired, folder, file)
    await desired.update(job, stop_mode="none")
    await desired.reaches(job, JobState.FAILED)
    message = (await desired.status(job))["error_message"]
    assert str(damaged) in message and "is missing" in message


async def stopped_and_damaged(desired: Desired, folder: Path, file: str) -> tuple[JobId, Path]:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job, 3)
    await desired.update(job, stop_mode="checkpoint")
    await desired.reaches(job, JobState.STOPPED)
    last = (await desired.checkpoints(job))[-1]["epoch"]
    damaged = folder / job / checkpoint_path(Epoch(last)) / file
    damaged.unlink()
    return job, damaged


async def test_an_older_checkpoint_is_taken_when_the_user_allows_it(
    desired: Desired, running: Running, workers: FakeWorkers, folder: Path
) -> None:
    async with running(retained="2"):
        job, damaged = await stopped_and_damaged(desired, folder, "metadata")
        last = (await desired.checkpoints(job))[-1]["epoch"]
        await desired.update(job, stop_mode="none", allow_fallback=True)
        await desired.reaches(job, JobState.RUNNING, 2)
        assert workers.stream.restored[-1] == metadata_path(checkpoint_path(Epoch(last - 1)))
        (warning,) = await desired.events(job, "warning")
        assert str(damaged) in warning["message"]
        await desired.saves(job)


async def test_a_file_that_only_a_worker_finds_damaged_is_fallen_back_from_too(
    desired: Desired, running: Running, workers: FakeWorkers, folder: Path
) -> None:
    async with running(retained="2"):
        job = await desired.create(interval_ms=INTERVAL, allow_fallback=True)
        await desired.reaches(job, JobState.RUNNING)
        await desired.saves(job, 3)
        await desired.update(job, stop_mode="checkpoint")
        await desired.reaches(job, JobState.STOPPED)
        last = (await desired.checkpoints(job))[-1]["epoch"]
        workers.starts = False
        await desired.update(job, stop_mode="none")
        await eventually(is_true(lambda: len(workers.all) == 2 and workers.all[1].execution is not None))
        workers.starts = True
        url = f"{(folder / job).as_uri()}/{checkpoint_path(Epoch(last))}/table"
        await workers.all[1].report_failed(workers.all[1].tasks[0], CorruptSnapshot(f"{url} is not Parquet"))
        await desired.reaches(job, JobState.RUNNING, 3)
        assert workers.stream.restored[-1] == metadata_path(checkpoint_path(Epoch(last - 1)))


async def test_reports_of_an_old_generation_are_refused(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.update(job, restart_nonce=1)
    await desired.reaches(job, JobState.RUNNING, 2)
    old: dict[str, Any] = {
        "worker_id": workers.all[0].id,
        "job": proto.TaskOwner(job_id=job, generation=1),
        "task": proto.Task(node_id="in"),
    }
    async with connect(f"127.0.0.1:{controller.rpc_port}", rpc_settings()) as channel:
        stub = ControllerServiceStub(channel)
        for call in (
            lambda: stub.TaskEnded(proto.TaskEndedRequest(**old)),
            lambda: stub.TaskCheckpointEvent(proto.TaskCheckpointEventRequest(job=old["job"])),
            lambda: stub.TaskCheckpointCompleted(proto.TaskCheckpointCompletedRequest(**old, epoch=1)),
            lambda: stub.TaskCheckpointFailed(proto.TaskCheckpointFailedRequest(**old, epoch=1)),
            lambda: stub.TaskCommitted(proto.TaskCommittedRequest(**old, epoch=1)),
        ):
            with pytest.raises(FencedError):
                async with calling(rpc_settings()):
                    await call()


async def test_the_files_of_a_deleted_job_are_deleted(desired: Desired, controller: Serving, folder: Path) -> None:
    job = await desired.create(interval_ms=INTERVAL)
    await desired.reaches(job, JobState.RUNNING)
    await desired.saves(job)
    await desired.delete(job)

    async def is_gone() -> bool:
        left = [info.path async for info in folder_of(folder, job).list()]
        return not left and not await desired.checkpoints(job)

    await eventually(is_gone)


async def test_a_job_on_several_workers_is_saved_as_one(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers, folder: Path
) -> None:
    workers.stream.length = 200
    settings = quick_settings(worker_slots="1")
    async with running_controller(pool, bus, settings, workers, checkpoint_folder=folder):
        job = await desired.create(parallelism=3, interval_ms=INTERVAL)
        await desired.reaches(job, JobState.RUNNING)
        assert len(workers.alive) == 3
        await desired.saves(job)
        await workers.alive[0].crash()
        await desired.reaches(job, JobState.RUNNING, 2)
        await desired.update(job, parallelism=2)
        await desired.reaches(job, JobState.RUNNING, 3)
        await desired.reaches(job, JobState.FINISHED)
    workers.stream.check(complete=True)


async def test_a_controller_that_is_stopped_leaves_the_job_to_the_next(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers, folder: Path
) -> None:
    workers.stream.length = 200
    workers.are_detached = True
    settings = quick_settings()
    async with running_controller(pool, bus, settings, workers, checkpoint_folder=folder) as first:
        job = await desired.create(parallelism=2, interval_ms=5)
        await desired.reaches(job, JobState.RUNNING)
        await desired.saves(job)
    again = settings.model_copy(update={"rpc_port": first.rpc_port})
    async with running_controller(pool, bus, again, workers, checkpoint_folder=folder):
        await desired.reaches(job, JobState.FINISHED, 1)
    workers.stream.check(complete=True)
    assert await desired.path(job) == ["compiling", "scheduling", "running", "finishing", "finished"]


async def test_postgres_being_away_delays_checkpoints_and_harms_nothing(
    tmp_path: Path, bus: Bus, workers: FakeWorkers, folder: Path
) -> None:
    config = load_config(environment={"PENSTOCK__DATABASE__COMMAND_TIMEOUT": "2s"})
    postgres = await EmbeddedPostgres.start(tmp_path / "postgres", {"fsync": "off"})
    pool = await open_database(postgres.url, config.section("database", DatabaseSettings))
    desired = Desired(pool)
    try:
        await migrate(pool)
        async with running_controller(pool, bus, quick_settings(), workers, checkpoint_folder=folder):
            job = await desired.create(interval_ms=5)
            await desired.reaches(job, JobState.RUNNING)
            await desired.saves(job)
            os.kill(postgres.pid, signal.SIGKILL)
            await postgres.ended.wait()
            begun = len(workers.all[0].checkpoints)
            outage_until = time.monotonic() + 1.5
            await eventually(is_true(lambda: time.monotonic() >= outage_until))
            # One may have been begun already; none is while its row cannot be written.
            assert len(workers.all[0].checkpoints) <= begun + 1
            assert workers.alive == workers.all
            postgres = await EmbeddedPostgres.start(tmp_path / "postgres", {"fsync": "off"})

            async def goes_on() -> bool:
                return len(workers.all[0].checkpoints) > begun + 3

            await eventually(goes_on, 15)
            assert await desired.path(job) == ["compiling", "scheduling", "running"]
            workers.stream.check()
    finally:
        pool.terminate()
        await postgres.stop()
