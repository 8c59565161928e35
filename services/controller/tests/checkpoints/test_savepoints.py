from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from penstock.common.checkpoint.metadata import read_snapshot, refers
from penstock.common.checkpoint.paths import metadata_path, savepoint_path
from penstock.common.ids import JobId, SavepointId
from penstock.common.jobs import JobState
from penstock.common.program import ConnectorSource, Program
from penstock.common.proto import worker_pb2
from penstock.common.storage import Storage, open_storage
from penstock.common.testing import eventually
from penstock.controller.service import Serving
from penstock.controller.testing import FakeWorkers, pipeline_program
from penstock.controller.testing_desired import Desired
from penstock.controller.testing_streams import FakeStream

Running = Callable[..., AbstractAsyncContextManager[Serving]]
NEVER = 3_600_000


def folder_of(folder: Path, job: JobId) -> Storage:
    return open_storage(str(folder / job))


async def paths_of(storage: Storage) -> set[str]:
    return {info.path async for info in storage.list()}


async def test_a_savepoint_is_made_of_a_checkpoint_that_is_taken_for_it(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job = await desired.create(parallelism=2, interval_ms=NEVER)
    await desired.reaches(job, JobState.RUNNING)
    wanted = await desired.want_savepoint(job, "before/it changes")
    made = await desired.savepoint_reaches(wanted, "ready")
    (row,) = await desired.checkpoints(job)
    assert (row["savepoint_id"], row["state"], row["then_stop"]) == (wanted, "ready", False)
    assert (made["epoch"], made["pipeline_id"]) == (1, desired.pipelines[job])
    assert made["path"] == savepoint_path("before/it changes") and made["bytes"] > 0
    snapshot = await read_snapshot(folder_of(folder, job), metadata_path(made["path"]))
    assert {path.split("/")[0] for path in refers(snapshot)} == {"savepoints", "checkpoints"}
    assert await desired.is_in(job, JobState.RUNNING)


async def test_savepoints_are_kept_until_they_are_deleted(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job = await desired.create(interval_ms=20)
    await desired.reaches(job, JobState.RUNNING)
    wanted = [await desired.want_savepoint(job, name) for name in ("one", "two")]
    storage = folder_of(folder, job)
    needed: set[str] = set()
    for each in wanted:
        made = await desired.savepoint_reaches(each, "ready")
        needed |= refers(await read_snapshot(storage, metadata_path(made["path"])))
    await desired.saves(job, 6)
    assert needed <= await paths_of(storage)
    for each in wanted:
        await desired.unwant_savepoint(each)
        await desired.savepoint_reaches(each, "deleted")
    again = await desired.want_savepoint(job, "one")
    await desired.savepoint_reaches(again, "ready")
    await desired.update(job, stop_mode="checkpoint")
    await desired.reaches(job, JobState.STOPPED)

    async def are_gone() -> bool:
        return not {path for path in await paths_of(storage) if path.startswith("savepoints/two/")} | (
            needed & {path for path in await paths_of(storage) if "checkpoints/" in path}
        )

    await eventually(are_gone)


async def test_a_job_at_rest_gives_its_last_checkpoint(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job = await desired.create(interval_ms=NEVER)
    await desired.reaches(job, JobState.RUNNING)
    await desired.update(job, stop_mode="checkpoint")
    await desired.reaches(job, JobState.STOPPED)
    made = await desired.savepoint_reaches(await desired.want_savepoint(job, "rest"), "ready")
    assert made["epoch"] == 1
    await desired.unwant_savepoint(made["id"])
    await desired.savepoint_reaches(made["id"], "deleted")
    await desired.update(job, stop_mode="none")
    await desired.reaches(job, JobState.RUNNING, 2)


async def test_a_savepoint_that_cannot_be_made_says_why(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    missing = JobId.new()
    found = await desired.savepoint_reaches(await desired.want_savepoint(missing, "none"), "failed")
    assert found["error"] == f"there is no job {missing}"
    workers.stream.refused = {1}
    job = await desired.create(interval_ms=NEVER)
    await desired.reaches(job, JobState.RUNNING)
    found = await desired.savepoint_reaches(await desired.want_savepoint(job, "full"), "failed")
    assert found["error"] == "the disk is full"
    await desired.update(job, stop_mode="immediate")
    await desired.reaches(job, JobState.STOPPED)
    found = await desired.savepoint_reaches(await desired.want_savepoint(job, "late"), "failed")
    assert found["error"] == "the job is not running, and has no checkpoint"
    await desired.unwant_savepoint(found["id"])
    await desired.savepoint_reaches(found["id"], "deleted")


async def test_a_savepoint_that_is_no_longer_wanted_before_it_is_made_is_not_made(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    workers.obeys = False
    job = await desired.create(interval_ms=NEVER)
    await desired.reaches(job, JobState.RUNNING)
    wanted = await desired.want_savepoint(job, "soon")

    async def has_begun() -> bool:
        return bool(await desired.checkpoints(job))

    await eventually(has_begun)
    await desired.unwant_savepoint(wanted)
    await desired.savepoint_reaches(wanted, "deleted")


async def test_a_savepoint_outlives_a_worker_that_dies_while_it_is_made(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    workers.obeys = False
    job = await desired.create(interval_ms=NEVER)
    await desired.reaches(job, JobState.RUNNING)
    wanted = await desired.want_savepoint(job, "patient")

    async def has_begun() -> bool:
        return bool(workers.all[0].checkpoints)

    await eventually(has_begun)
    workers.obeys = True
    await workers.all[0].crash()
    await desired.savepoint_reaches(wanted, "ready")
    rows = await desired.checkpoints(job)
    assert [row["state"] for row in rows] == ["abandoned", "ready"]


async def start_from(
    desired: Desired, workers: FakeWorkers, program: Program | None = None, *, parallelism: int = 1
) -> tuple[JobId, JobId, SavepointId]:
    """A job that begins with the savepoint of another, which is running."""
    job = await desired.create(parallelism=2, interval_ms=20)
    await desired.reaches(job, JobState.RUNNING)
    savepoint = await desired.want_savepoint(job, "start")
    await desired.savepoint_reaches(savepoint, "ready")
    await desired.update(job, stop_mode="immediate")
    await desired.reaches(job, JobState.STOPPED)
    workers.stream = FakeStream()
    other = await desired.create(program, parallelism=parallelism, interval_ms=NEVER, restore_from=savepoint)
    return job, other, savepoint


async def test_a_job_begins_with_a_savepoint_of_another_at_another_parallelism(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job, other, _ = await start_from(desired, workers, parallelism=3)
    await desired.reaches(other, JobState.RUNNING)
    started = workers.all[-1].execution
    assert started is not None
    assert started.checkpoints == worker_pb2.Checkpoints(
        url=(folder / other).as_uri(),
        restore=metadata_path(savepoint_path("start")),
        restore_url=(folder / job).as_uri(),
    )
    # Until it has a checkpoint of its own, it begins there again.
    await workers.alive[-1].crash()
    await desired.reaches(other, JobState.RUNNING, 2)
    assert workers.stream.restored == [metadata_path(savepoint_path("start"))] * 2
    await desired.update(other, checkpoint_interval_ms=20)
    await desired.saves(other)
    await workers.alive[-1].crash()
    await desired.reaches(other, JobState.RUNNING, 3)
    assert workers.stream.restored[2].startswith("checkpoints/")
    # It began where the other was, and not at the beginning.
    assert all(start > 0 for ranges in workers.stream.seen.values() for _, start, _ in ranges)


async def test_a_savepoint_is_not_deleted_while_a_job_can_only_begin_with_it(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    _, other, savepoint = await start_from(desired, workers)
    await desired.reaches(other, JobState.RUNNING)
    await desired.unwant_savepoint(savepoint)
    await workers.alive[-1].crash()
    await desired.reaches(other, JobState.RUNNING, 2)
    assert (await desired.savepoint(savepoint))["state"] == "ready"
    await desired.update(other, checkpoint_interval_ms=20)
    await desired.savepoint_reaches(savepoint, "deleted")


async def test_a_savepoint_outlives_its_job(
    desired: Desired, controller: Serving, workers: FakeWorkers, folder: Path
) -> None:
    job, other, savepoint = await start_from(desired, workers)
    await desired.reaches(other, JobState.RUNNING)
    await desired.delete(job)
    storage = folder_of(folder, job)
    needed = refers(await read_snapshot(storage, metadata_path(savepoint_path("start"))))

    async def only_it_is_left() -> bool:
        return await paths_of(storage) == needed

    await eventually(only_it_is_left)
    await workers.alive[-1].crash()
    await desired.reaches(other, JobState.RUNNING, 2)
    await desired.delete(other)
    await desired.unwant_savepoint(savepoint)
    await desired.savepoint_reaches(savepoint, "deleted")

    async def nothing_is_left() -> bool:
        return not await paths_of(storage)

    await eventually(nothing_is_left)


async def test_a_query_whose_state_means_something_else_does_not_start(
    desired: Desired, controller: Serving, workers: FakeWorkers
) -> None:
    program = pipeline_program()
    read = program.nodes[0].operators[0]
    other_read = replace(read, kind=ConnectorSource("impulse", "impulse", {"message_count": "5"}, {}))
    changed = replace(program, nodes=(replace(program.nodes[0], operators=(other_read,)), program.nodes[1]))
    _, other, _ = await start_from(desired, workers, changed)
    await desired.reaches(other, JobState.FAILED)
    message = (await desired.status(other))["error_message"]
    assert message == "the query cannot go on from savepoint start: the state of op_in (read) does not fit it"


async def test_a_savepoint_that_does_not_exist_fails_the_job(desired: Desired, controller: Serving) -> None:
    missing = SavepointId.new()
    job = await desired.create(interval_ms=NEVER, restore_from=missing)
    await desired.reaches(job, JobState.FAILED)
    assert (await desired.status(job))["error_message"] == f"there is no savepoint {missing}"
