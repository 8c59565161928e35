"""What a controller costs: 100 idle pipelines and 10 that read, and a history of 100 and of 10,000 finished jobs.

The controller is a process of its own with a real Postgres and NATS; its CPU is what is counted, and beside it that of
the Postgres server, which does its queries. Nodes and workers are simulated in this process: a JVM for each of 110 jobs
would not fit. They speak the real protocol over gRPC: register, beat as often as workers do, and take part in a
checkpoint of each job every ten seconds, with state in files and a commit. Idle jobs read nothing. A transition's
latency is from what a user wants being written, as the api does it, to the first state that it leads to being in
Postgres.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from local_job import run
from report import options, show

from penstock.common import subjects
from penstock.common.bus import Bus, NatsSettings
from penstock.common.config import load_config
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.ids import JobId
from penstock.common.jobs import JobState
from penstock.common.testing import eventually, free_port
from penstock.common.testing_servers import temporary_database, temporary_nats, temporary_postgres
from penstock.controller.testing import FakeNode, FakeWorkers
from penstock.controller.testing_desired import Desired
from penstock.controller.testing_streams import FakeStream
from penstock.worker.settings import WorkerSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))

from harness import PENSTOCK, Process, plain_environment

IDLE: Final = 100
READING: Final = 10
INTERVAL_MS: Final = 10_000
HISTORIES: Final = (100, 10_000)
COLUMNS: Final = {"finished_jobs": "d", "controller_cpu_percent": ".1f", "postgres_cpu_percent": ".1f"}

# What three checkpoints of each have left, too.
FINISH: Final = """
WITH old AS (
    SELECT 'job_' || lpad(n::text, 26, '0') AS job, 'pl_' || lpad(n::text, 26, '0') AS pipeline
    FROM generate_series($1::int, $2::int - 1) AS n),
  added AS (INSERT INTO pipelines (id, name, query, program) SELECT pipeline, 'old', '', '' FROM old),
  wanted AS (
    INSERT INTO job_configs (id, pipeline_id, parallelism, checkpoint_interval_ms)
    SELECT job, pipeline, 1, 10000 FROM old),
  made AS (
    INSERT INTO checkpoints (job_id, epoch, generation, state, then_stop, started_at)
    SELECT job, epoch, 1, 'ready', false, now() FROM old, generate_series(1, 3) AS epoch)
INSERT INTO job_statuses (job_id, state, generation) SELECT job, 'finished', 1 FROM old
"""


class Stand:
    """A controller under load."""

    def __init__(self, pool: Pool, bus: Bus, controller: int, postgres: int) -> None:
        self._bus = bus
        self._pool = pool
        self._controller = psutil.Process(controller)
        self._postgres = psutil.Process(postgres)
        self.desired = Desired(pool)

    async def create(self, count: int) -> list[JobId]:
        jobs = [await self.desired.create(interval_ms=INTERVAL_MS) for _ in range(count)]
        for job in jobs:
            self._bus.publish(subjects.job_desired(job), b"")
        for job in jobs:
            await eventually(lambda job=job: self.desired.is_in(job, JobState.RUNNING), 120)  # type: ignore[misc]
        return jobs

    async def add_history(self, start: int, end: int) -> None:
        for first in range(start, end, 1000):
            await self._pool.execute(FINISH, first, min(first + 1000, end))
        await self._pool.execute("ANALYZE")

    async def cpu(self, seconds: float) -> tuple[float, float]:
        """The shares of a core that the controller and Postgres take, in per cent."""
        before, started = self._spent(), time.perf_counter()
        await asyncio.sleep(seconds)
        after, took = self._spent(), time.perf_counter() - started
        controller, postgres = (100 * (b - a) / took for a, b in zip(before, after, strict=True))
        return controller, postgres

    def _spent(self) -> tuple[float, float]:
        servers = [self._postgres, *self._postgres.children(recursive=True)]
        return _seconds(self._controller), sum(map(_seconds, servers))

    async def transition(self, job: JobId, stop_mode: str, leaves: JobState) -> float:
        """The milliseconds until a job has left its state, because something else is wanted of it."""
        await self.desired.update(job, stop_mode=stop_mode)
        started = time.perf_counter()
        self._bus.publish(subjects.job_desired(job), b"")
        while await self.desired.is_in(job, leaves):  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.002)
        return 1000 * (time.perf_counter() - started)


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


@asynccontextmanager
async def standing() -> AsyncIterator[tuple[Stand, FakeWorkers]]:
    config = load_config(environment={})
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = await stack.enter_async_context(temporary_postgres())
        nats = await stack.enter_async_context(temporary_nats())
        url = await stack.enter_async_context(temporary_database(postgres))
        pool = await open_database(url, config.section("database", DatabaseSettings))
        stack.callback(pool.terminate)
        await migrate(pool)
        bus = await Bus.connect(nats.url, config.section("nats", NatsSettings))
        stack.push_async_callback(bus.close)
        port = free_port()
        environment = plain_environment(
            PENSTOCK__DATABASE__URL=url,
            PENSTOCK__NATS__URL=nats.url,
            PENSTOCK__CHECKPOINTS__URL=str(folder / "checkpoints"),
            PENSTOCK__CONTROLLER__RPC_PORT=str(port),
            PENSTOCK__CONTROLLER__ADMIN_PORT="0",
        )
        process = await Process.start("controller", [str(PENSTOCK), "controller"], environment, folder)
        stack.push_async_callback(process.stop)
        workers = FakeWorkers()
        workers.beat_seconds = config.section("worker", WorkerSettings).heartbeat_interval.total_seconds()
        stack.push_async_callback(workers.close)
        node = await FakeNode(f"127.0.0.1:{port}", 2 * (IDLE + READING), workers).open()
        stack.push_async_callback(node.close)
        yield Stand(pool, bus, process.pid, postgres.pid), workers


async def main() -> None:
    arguments = options(__doc__)
    seconds, rounds = (11.0, 3) if arguments.quick else (40.0, 12)
    rows: list[dict[str, Any]] = []
    latencies: list[float] = []
    async with standing() as (stand, workers):
        workers.stream = FakeStream(pause_seconds=3600)
        await stand.create(IDLE)
        workers.stream = FakeStream(pause_seconds=0.05)
        jobs = await stand.create(READING)
        await stand.add_history(0, HISTORIES[0])
        known = 0
        for finished in HISTORIES:
            await stand.add_history(max(known, HISTORIES[0]), finished)
            known = finished
            await asyncio.sleep(3)  # what has just been added is seen once
            controller, postgres = await stand.cpu(seconds)
            rows.append(
                {
                    "finished_jobs": finished,
                    "controller_cpu_percent": controller,
                    "postgres_cpu_percent": postgres,
                }
            )
        for _ in range(rounds):
            for job in jobs:
                latencies.append(await stand.transition(job, "immediate", JobState.RUNNING))
                await stand.desired.reaches(job, JobState.STOPPED)
                latencies.append(await stand.transition(job, "none", JobState.STOPPED))
                await stand.desired.reaches(job, JobState.RUNNING)
    result = {
        "benchmark": "control",
        "rows": rows,
        "transitions": len(latencies),
        "transition_ms_p50": statistics.median(latencies),
        "transition_ms_p99": statistics.quantiles(latencies, n=100)[98],
        "history_ratio": rows[1]["controller_cpu_percent"] / rows[0]["controller_cpu_percent"],
    }
    show(result, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
