"""A worker that ends at any named step of a checkpoint: what is committed in the end is there exactly once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from reference.cases import FULL, SEED
from reference.comparison import difference, fold
from reference.data import dataset
from reference.interruptions import Journey, started, travel
from reference.memory import MemoryTables
from reference.runs import Cut

from penstock.common.crash_points import crash_hook
from penstock.common.ids import JobId
from penstock.common.program import Program
from penstock.common.storage import open_storage
from penstock.spark import Engine
from penstock.worker import snapshots
from penstock.worker.steps import Step
from penstock.worker.testing_checkpoints import Checkpointing, until

SQL: Final = """
SELECT user, count(*) AS windows, sum(n) AS n, max(most) AS most FROM (
  SELECT user, tumble(INTERVAL '10 seconds') AS w, count(*) AS n, max(amount) AS most FROM events GROUP BY 1, 2
) GROUP BY 1
"""
ROWS: Final = 400
CUT: Final = Cut(2, 7)
EPOCHS: Final = 12


class _Crash:
    """Stands still at the nth passage of a step, as a process that has ended does."""

    def __init__(self, step: Step, nth: int) -> None:
        self._step = step
        self._left = nth
        self.happened = asyncio.Event()

    async def hook(self, step: str) -> None:
        if self.happened.is_set():
            await asyncio.get_running_loop().create_future()
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                self.happened.set()
                await asyncio.get_running_loop().create_future()


def _places() -> list[tuple[Step, int]]:
    """Each step, the first time that a worker comes to it and the second; or some of them, others every day."""
    every = [(step, nth) for step in Step for nth in (1, 2)]
    return every if FULL else random.Random(SEED).sample(every, 7)


@pytest.mark.parametrize(("step", "nth"), _places(), ids=str)
async def test_a_crash_at_a_step_changes_nothing(
    step: Step,
    nth: int,
    engine: Engine,
    compile_once: Callable[[str], Awaitable[Program]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "_MOST_FILES", 2)
    program, data = await compile_once(SQL), dataset(ROWS)
    expected = fold((await travel(engine, program, data, CUT, Journey((), 2, 0), tmp_path / "whole")).batches)
    tables = MemoryTables(data, CUT.batch_rows, pause_seconds=0.01)
    folder = tmp_path / "crashed"
    folder.mkdir()
    checkpointing = Checkpointing(open_storage(folder.as_uri()))
    job = JobId.new()
    if step in (Step.RESTORED, Step.BEFORE_RECOVER, Step.RECOVERED):  # which only a later generation comes to
        await _run(engine, program, tables, job, 1, checkpointing, folder, _Crash(Step.COMMITTED, 4))
    crash = _Crash(step, nth)
    await _run(engine, program, tables, job, 2, checkpointing, folder, crash)
    assert crash.happened.is_set(), f"no worker came to {step} {nth} times"
    await _run(engine, program, tables, job, 3, checkpointing, folder, None)
    assert difference(fold(tables.written), expected, []) is None


async def _run(
    engine: Engine,
    program: Program,
    tables: MemoryTables,
    job: JobId,
    generation: int,
    checkpointing: Checkpointing,
    folder: Path,
    crash: _Crash | None,
) -> None:
    """Runs a job, with a checkpoint every few batches, to its end or to its crash."""
    execution, reporter = started(engine, program, tables, CUT, job, generation, checkpointing, folder)

    async def work() -> None:
        running = asyncio.create_task(execution.run())
        try:
            for _ in range(EPOCHS):
                wanted = tables.batches_given + ROWS // CUT.batch_rows // (2 * EPOCHS) + 1
                await until(lambda: tables.batches_given >= wanted or bool(reporter.tasks_ended))  # noqa: B023
                await checkpointing.take(execution, reporter)
            await checkpointing.finish(execution, reporter, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async with asyncio.timeout(120):
        if crash is None:
            await work()
            return
        with crash_hook(crash.hook):
            working = asyncio.create_task(work())
            waiting = asyncio.create_task(crash.happened.wait())
            await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
            for task in (working, waiting):
                task.cancel()
            await asyncio.gather(working, waiting, return_exceptions=True)
