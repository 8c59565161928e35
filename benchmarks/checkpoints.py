"""What checkpoints cost a job with a gigabyte of keyed state: pauses, bytes, restoring, and throughput.

The operator is a compiled query's updating aggregate, driven as a worker drives it, with files in a local folder. A
pause is what a barrier takes before the stream goes on: all that is frozen, not what is written in the background. An
incremental checkpoint is made after 1 % of the keys were touched. Throughput is measured twice, with a checkpoint every
10 s and without any: keys of that state touched at random, and a job, windows over nexmark.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from local_job import compiled, run, run_job
from report import options, show
from updating import Aggregate, opened, planned

from penstock.common.config import load_config
from penstock.common.program import NodeKey, OperatorKey
from penstock.common.storage import open_storage
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.spark.testing import spark_settings
from penstock.worker import state_files
from penstock.worker.assignment import Checkpoints
from penstock.worker.engine import Execution
from penstock.worker.settings import WorkerSettings
from penstock.worker.signals import START_OF_TIME, Barrier
from penstock.worker.snapshots import KeptTable, Snapshots
from penstock.worker.state.tables import KeyValueView
from penstock.worker.subtask import Surroundings
from penstock.worker.testing import MemoryReporter, NoOutput, assignment
from penstock.worker.testing_checkpoints import Checkpointing, until
from penstock.worker.wiring import TaskId

KEYS: Final = 10_500_000
BARRIERS: Final = 100
TOUCHED: Final = 5000
INTERVAL_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
STEADY_SECONDS, QUICK_SECONDS = 45.0, 12.0
BATCH_KEYS: Final = 30_000
PARALLELISM: Final = 2
COLUMNS: Final = {"what": "", "value": ",.2f", "unit": ""}
NEXMARK_SQL: Final = """
CREATE TABLE nexmark WITH (connector = 'nexmark', events = '{events}');
CREATE TABLE nothing (bidder BIGINT, n BIGINT, most BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT bid.bidder, count(*), max(bid.price) FROM nexmark
WHERE bid IS NOT NULL GROUP BY bid.bidder, tumble(INTERVAL '10 minutes');
"""


class Kept:
    """An operator's checkpoints in a folder."""

    def __init__(self, aggregate: Aggregate, folder: Path) -> None:
        self._aggregate = aggregate
        self._storage = open_storage(folder.as_uri())
        self._reporter = MemoryReporter()
        self.tables = [KeptTable(OperatorKey("groups"), *item) for item in aggregate.operator.tables.items()]
        task = TaskId(NodeKey("groups"), 0)
        self._snapshots = Snapshots(task, 1, self._storage, self._reporter, self.tables)
        self._epoch = 0
        self._running = asyncio.create_task(self._snapshots.run())

    async def take(self) -> tuple[float, float, int]:
        """Makes a checkpoint; returns the milliseconds of its pause, the seconds of its writing, and its bytes."""
        self._epoch += 1
        started = time.perf_counter()
        self._snapshots.freeze(Barrier(self._epoch), START_OF_TIME, None)
        paused = time.perf_counter()
        await until(lambda: bool(self._reporter.completed) and self._reporter.completed[-1].epoch == self._epoch)
        (state,) = self._reporter.completed[-1].operators
        return (paused - started) * 1000, time.perf_counter() - paused, state.written_bytes

    async def restore(self, aggregate: Aggregate) -> float:
        """Puts all into another operator; returns the seconds."""
        started = time.perf_counter()
        (kept,) = self.tables
        (table,) = aggregate.operator.tables.values()
        assert isinstance(table, KeyValueView)
        table.expect(sum(file.rows for file in kept.files))  # as when a job is restored
        async for rows in state_files.latest(self._storage, kept.files, tombstones=False):
            await aggregate.operator.restore(kept.name, rows)
        return time.perf_counter() - started

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


async def state_figures(engine: Engine, keys: int, folder: Path) -> list[dict[str, Any]]:
    random = np.random.default_rng(keys)
    aggregate = await opened(engine, keys)
    seconds = STEADY_SECONDS if keys == KEYS else QUICK_SECONDS
    without = await keys_per_second(aggregate, random, seconds)
    for table in aggregate.operator.tables.values():
        table.begin()
    kept = Kept(aggregate, folder)
    with_checkpoints, epochs = await keys_per_second_checkpointed(aggregate, kept, random, seconds)
    state_mb = aggregate.operator.state_bytes / 1e6
    await aggregate.fill()
    _, full_seconds, full_bytes = await kept.take()
    for begin in range(0, keys // 100, TOUCHED):
        await aggregate.touch(random.choice(keys, min(TOUCHED, keys // 100 - begin), replace=False))
    _, _, some_bytes = await kept.take()
    pauses = []
    for _ in range(BARRIERS):
        await aggregate.touch(random.choice(keys, TOUCHED, replace=False))
        pauses.append((await kept.take())[0])
    again = await planned(engine)
    seconds = await kept.restore(again)
    assert again.operator.state_rows == aggregate.operator.state_rows
    await kept.close()
    return [
        figure("state", state_mb, "MB"),
        figure("pause at a barrier, p99", statistics.quantiles(pauses, n=100)[-1], "ms"),
        figure("pause at a barrier, longest", max(pauses), "ms"),
        figure("full checkpoint", full_bytes / 1e6, "MB"),
        figure("full checkpoint, written in", full_seconds, "s"),
        figure("checkpoint after 1 % of the keys", some_bytes / 1e6, "MB"),
        figure("of a full one", 100 * some_bytes / full_bytes, "%"),
        figure("restored", state_mb / seconds, "MB/s"),
        figure("keys touched without checkpoints", without / 1000, "thousand/s"),
        figure("with one every 10 s", with_checkpoints / 1000, "thousand/s"),
        figure("of them", epochs, ""),
        figure("keyed throughput with checkpoints", 100 * with_checkpoints / without, "% of that without"),
    ]


async def keys_per_second(aggregate: Aggregate, random: np.random.Generator, seconds: float) -> float:
    """How many keys are touched a second, any of all, in batches as large as a worker's."""
    touched, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        batch = np.unique(random.integers(0, aggregate.keys, BATCH_KEYS))
        await aggregate.touch(batch)
        touched += batch.size
    return touched / (time.perf_counter() - started)


async def keys_per_second_checkpointed(
    aggregate: Aggregate, kept: Kept, random: np.random.Generator, seconds: float
) -> tuple[float, int]:
    """The same with a checkpoint every 10 s; returns how many there were, too."""
    epochs = 0

    async def checkpoint() -> None:
        nonlocal epochs
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await kept.take()
            epochs += 1

    checkpointing = asyncio.create_task(checkpoint())
    try:
        return await keys_per_second(aggregate, random, seconds), epochs
    finally:
        checkpointing.cancel()
        await asyncio.gather(checkpointing, return_exceptions=True)


def figure(what: str, value: float, unit: str) -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit}


async def run_checkpointed(engine: Engine, sql: str, folder: Path) -> int:
    """Runs a job with a checkpoint every 10 s; returns how many there were."""
    program = (await compiled(engine, sql)).at_parallelism(PARALLELISM)
    pace = load_config(environment={}).section("worker", WorkerSettings).pace
    reporter, output = MemoryReporter(), NoOutput()
    surroundings = Surroundings(engine, CONNECTORS, {}, pace, lambda _table, _task: output)
    execution = Execution(assignment(program, checkpoints=Checkpoints(folder.as_uri())), surroundings, reporter)
    checkpointing = Checkpointing(open_storage(folder.as_uri()))
    running = asyncio.create_task(execution.run())
    while True:
        due = time.monotonic() + INTERVAL_SECONDS
        # Not `until`, which looks a thousand times a second: nothing but checkpoints is to be measured.
        while not (reporter.tasks_ended or running.done() or time.monotonic() >= due):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        if reporter.tasks_ended or running.done():
            await checkpointing.finish(execution, reporter, running)
            assert not reporter.failed, reporter.failed
            return checkpointing.epoch
        await checkpointing.take(execution, reporter)


async def throughput(engine: Engine, events: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    sql = NEXMARK_SQL.format(events=events)
    with_checkpoints, without, epochs = [], [], 0
    for number in range(rounds + 1):
        started = time.perf_counter()
        await run_job(engine, await compiled(engine, sql), PARALLELISM)
        between = time.perf_counter()
        target = folder / str(number)
        target.mkdir()
        epochs = await run_checkpointed(engine, sql, target)
        if number:  # the first is not counted
            without.append(between - started)
            with_checkpoints.append(time.perf_counter() - between)
    ratio = 100 * statistics.median(without) / statistics.median(with_checkpoints)
    return [
        figure("a job without checkpoints", statistics.median(without), "s"),
        figure("with one every 10 s", statistics.median(with_checkpoints), "s"),
        figure("of them, the last one included", epochs, ""),
        figure("throughput with checkpoints", ratio, "% of that without"),
    ]


async def main() -> None:
    arguments = options(__doc__)
    keys = 200_000 if arguments.quick else KEYS
    events = 5_000_000 if arguments.quick else 150_000_000
    async with await Engine.start(spark_settings()) as engine:
        with tempfile.TemporaryDirectory() as name:
            state, jobs = Path(name) / "state", Path(name) / "jobs"
            state.mkdir()
            jobs.mkdir()
            rows = await state_figures(engine, keys, state)
            rows += await throughput(engine, events, 1 if arguments.quick else 4, jobs)
    show({"benchmark": "checkpoints", "rows": rows}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
