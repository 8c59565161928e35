"""A controller that ends at any step of a checkpoint: the next one goes on, and each row arrives once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.common.bus import Bus
from penstock.common.checkpoint.metadata import check_files, read_snapshot
from penstock.common.checkpoint.paths import Epoch, checkpoint_path, metadata_path
from penstock.common.config import load_config
from penstock.common.crash_points import crash_hook
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.embedded import EmbeddedPostgres
from penstock.common.ids import JobId, SavepointId
from penstock.common.jobs import JobState
from penstock.common.storage import open_storage
from penstock.common.testing import eventually, free_port
from penstock.common.testing_servers import temporary_database
from penstock.controller import term
from penstock.controller.checkpoints.steps import Step
from penstock.controller.testing import FakeWorkers, quick_settings, running_controller
from penstock.controller.testing_desired import Desired
from penstock.controller.testing_streams import FakeStream

INTERVAL = 20
# Passed only by a controller that finds what another left under way.
AFTER_A_CRASH = {Step.BEFORE_RESOLVE, Step.AFTER_RESOLVE}
PASSAGES = (1, 2, 3) if os.environ.get("PENSTOCK_TEST_FULL") else (1,)
# Passed once in the life of these tests' jobs.
ONCE = {
    step
    for step in Step
    if "savepoint" in step or "abandon" in step or "resolve" in step or "ended" in step or "start" in step
}


@dataclass(slots=True)
class Crash:
    """Ends a controller at a passage of a step: nothing of it goes on from there."""

    step: Step
    nth: int
    happened: asyncio.Event = field(default_factory=asyncio.Event)

    async def hook(self, step: str) -> None:
        if step == self.step and not self.happened.is_set():
            self.nth -= 1
            if self.nth == 0:
                self.happened.set()
        if self.happened.is_set():
            await asyncio.Event().wait()


@dataclass(slots=True)
class Place:
    """What outlives controllers."""

    url: str
    bus: Bus
    workers: FakeWorkers
    folder: Path
    port: int = field(default_factory=free_port)

    @asynccontextmanager
    async def pool(self) -> AsyncIterator[Pool]:
        pool = await open_database(self.url, load_config(environment={}).section("database", DatabaseSettings))
        try:
            yield pool
        finally:
            pool.terminate()

    @asynccontextmanager
    async def controller(self, pool: Pool) -> AsyncIterator[None]:
        settings = quick_settings(rpc_port=str(self.port), adopt_timeout="700ms")
        async with running_controller(pool, self.bus, settings, self.workers, checkpoint_folder=self.folder):
            yield

    async def crash(self, step: Step, nth: int = 1, meanwhile: Awaitable[None] | None = None) -> None:
        """A controller that ends at a step. Its pool is gone before it could write any last words; what it says of that
        is nobody's business."""
        crash = Crash(step, nth)
        try:
            with crash_hook(crash.hook):
                async with self.pool() as pool, self.controller(pool):
                    if meanwhile is not None:
                        await meanwhile
                    async with asyncio.timeout(15):
                        await crash.happened.wait()
                    pool.terminate()
        except Exception:
            if not crash.happened.is_set():
                raise


@pytest.fixture
async def place(
    postgres: EmbeddedPostgres, bus: Bus, workers: FakeWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    monkeypatch.setattr(term, "_LAST_WRITES_SECONDS", 0)
    workers.are_detached = True
    async with temporary_database(postgres) as url:
        yield Place(url, bus, workers, tmp_path / "checkpoints")


async def make_and_delete_a_savepoint(desired: Desired, job: JobId) -> None:
    """Another one when the first happened to be of the epoch that could not be written."""
    for name in ("first", "second"):
        savepoint = await desired.want_savepoint(job, name)

        async def is_settled(savepoint: SavepointId = savepoint) -> bool:
            return "state" in await desired.savepoint(savepoint)

        await eventually(is_settled, 60)
        made = await desired.savepoint(savepoint)
        await desired.unwant_savepoint(savepoint)
        await desired.savepoint_reaches(savepoint, "deleted")
        if made["state"] == "ready":
            return


async def is_restorable(desired: Desired, folder: Path, job: JobId) -> None:
    """What can be restored can be read."""
    storage = open_storage(str(folder / job))
    for row in await desired.checkpoints(job):
        if row["state"] in {"committing", "ready"}:
            snapshot = await read_snapshot(storage, metadata_path(checkpoint_path(Epoch(row["epoch"]))))
            await check_files(storage, snapshot)


@pytest.mark.parametrize(
    ("step", "nth"), [(step, nth) for step in Step for nth in PASSAGES if nth == 1 or step not in ONCE]
)
async def test_each_row_arrives_once_whichever_step_a_controller_ends_at(place: Place, step: Step, nth: int) -> None:
    stream = place.workers.stream = FakeStream(length=150, refused={2})
    async with place.pool() as pool:
        await migrate(pool)
        desired = Desired(pool)
        job = await desired.create(parallelism=2, interval_ms=INTERVAL)
        savepoint = asyncio.create_task(make_and_delete_a_savepoint(desired, job))
        try:
            if step in AFTER_A_CRASH:
                await place.crash(Step.AFTER_BEGIN, 2)
            await place.crash(step, nth)
            stream.check()
            async with place.controller(pool):
                await desired.reaches(job, JobState.FINISHED)
                await savepoint
        finally:
            savepoint.cancel()
        stream.check(complete=True)
        await is_restorable(desired, place.folder, job)
        epochs = [row["epoch"] for row in await desired.checkpoints(job)]
        assert epochs == sorted(set(epochs))
        states = [row["state"] for row in await desired.checkpoints(job)]
        assert "inprogress" not in states and "committing" not in states


@pytest.mark.parametrize("step", [Step.AFTER_BEGIN, Step.AFTER_METADATA, Step.AFTER_RECORD, Step.AFTER_READY])
@pytest.mark.parametrize("change", [{"parallelism": 3}, {"stop_mode": "checkpoint"}, {"restart_nonce": 1}])
async def test_what_a_controller_had_begun_the_next_one_ends(
    place: Place, step: Step, change: dict[str, object]
) -> None:
    """The last checkpoint of a job that is to be rescaled, stopped or restarted."""
    stream = place.workers.stream = FakeStream(length=300)
    async with place.pool() as pool:
        await migrate(pool)
        desired = Desired(pool)
        job = await desired.create(parallelism=2, interval_ms=3_600_000)

        async def change_it() -> None:
            await desired.reaches(job, JobState.RUNNING)
            await desired.update(job, **change)

        await place.crash(step, meanwhile=change_it())
        async with place.controller(pool):
            if "stop_mode" in change:
                await desired.reaches(job, JobState.STOPPED)
                stream.check()
                await desired.update(job, stop_mode="none")
            await desired.reaches(job, JobState.FINISHED)
        stream.check(complete=True)


@pytest.mark.parametrize("step", [Step.AFTER_BEGIN, Step.AFTER_METADATA, Step.AFTER_RECORD, Step.AFTER_COMMIT])
async def test_controller_and_workers_may_end_together(place: Place, step: Step) -> None:
    stream = place.workers.stream = FakeStream(length=200)
    async with place.pool() as pool:
        await migrate(pool)
        desired = Desired(pool)
        job = await desired.create(parallelism=2, interval_ms=INTERVAL)
        for nth in (1, 2):
            await place.crash(step, nth)
            await place.workers.close()
        async with place.controller(pool):
            await desired.reaches(job, JobState.FINISHED)
        stream.check(complete=True)
