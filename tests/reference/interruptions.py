"""Jobs that are stopped, crashed and restored at other parallelisms on their way: their results must not show it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from reference.data import Dataset
from reference.lookups import MemoryLookups
from reference.memory import MemoryTables
from reference.runs import Cut, NotRun, Outcome

from penstock.common.ids import Generation, JobId, PipelineId
from penstock.common.program import Program
from penstock.common.storage import open_storage
from penstock.connectors.base import Connector
from penstock.spark import Engine
from penstock.worker.assignment import Checkpoints, Job
from penstock.worker.engine import Execution
from penstock.worker.subtask import Surroundings
from penstock.worker.testing import MemoryReporter, NoOutput, assignment
from penstock.worker.testing_checkpoints import Checkpointing, until

NO_OTHERS: Final[Mapping[str, Connector]] = MappingProxyType({})
_DEADLINE_SECONDS: Final = 240.0


class End(Enum):
    """How a part of a job ends."""

    STOPPED = "stopped"  # with a checkpoint
    CRASHED = "crashed"  # at any moment
    CRASHED_BEFORE_COMMIT = "crashed before commit"


@dataclass(frozen=True)
class Phase:
    """A part of a job: it ends after so many more batches were read."""

    parallelism: int
    batches: int
    end: End


@dataclass(frozen=True)
class Journey:
    """A job from its beginning to its end."""

    phases: tuple[Phase, ...]
    last_parallelism: int
    seed: int

    def __str__(self) -> str:
        return " ".join(f"{phase.parallelism}:{phase.end.value}" for phase in self.phases) + f" {self.last_parallelism}"


def rescaled(total: int, seed: int) -> Journey:
    """At parallelism 1, 2, 3 and 1 again, each time stopped with a checkpoint."""
    part = max(1, total // 4)
    return Journey(tuple(Phase(parallelism, part, End.STOPPED) for parallelism in (1, 2, 3)), 1, seed)


def crashed(total: int, seed: int) -> Journey:
    """Crashed a few times, with checkpoints that were committed or not."""
    chance = random.Random(seed)
    ends = [End.CRASHED, End.CRASHED, End.CRASHED_BEFORE_COMMIT]
    parallelism = chance.choice([1, 2, 3])
    phases = [Phase(parallelism, chance.randint(1, max(1, total // 2)), chance.choice(ends)) for _ in range(3)]
    return Journey(tuple(phases), parallelism, seed)


async def travel(engine: Engine, program: Program, data: Dataset, cut: Cut, journey: Journey, folder: Path) -> Outcome:
    """Runs a program over a dataset to its end, through all phases."""
    return await travel_with(engine, program, MemoryTables(data, cut.batch_rows), cut, journey, folder)


async def travel_with(
    engine: Engine,
    program: Program,
    tables: MemoryTables,
    cut: Cut,
    journey: Journey,
    folder: Path,
    connectors: Mapping[str, Connector] = NO_OTHERS,
) -> Outcome:
    """The same with tables whose reads are counted, and perhaps connectors of a test's own in the place of others."""
    checkpointing = Checkpointing(open_storage(folder.as_uri()))
    chance = random.Random(journey.seed)
    job, late_rows = JobId.new(), 0
    async with asyncio.timeout(_DEADLINE_SECONDS):
        for generation, phase in enumerate((*journey.phases, None), start=1):
            parallelism = journey.last_parallelism if phase is None else phase.parallelism
            execution, reporter = started(
                engine,
                program,
                tables,
                replace(cut, parallelism=parallelism),
                job,
                generation,
                checkpointing,
                folder,
                connectors,
            )
            running = asyncio.create_task(execution.run())
            try:
                if phase is None:
                    await checkpointing.finish(execution, reporter, running)
                else:
                    await _go(phase, execution, reporter, tables, checkpointing, running, chance)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            for task, error in reporter.failed:
                raise NotRun(f"{task} failed in generation {generation}: {error}")
            late_rows = sum(metrics.late_rows for metrics in execution.metrics)
    return Outcome(tuple(tables.written), tables.batches_read, late_rows)


async def _go(
    phase: Phase,
    execution: Execution,
    reporter: MemoryReporter,
    tables: MemoryTables,
    checkpointing: Checkpointing,
    running: asyncio.Task[None],
    chance: random.Random,
) -> None:
    """Runs a phase, with checkpoints at moments of its own."""
    until_batch = tables.batches_given + phase.batches
    program = execution.assignment.program
    sources = {task for task in execution.assignment.tasks if program.node(task.node).is_source}

    def is_over() -> bool:
        return tables.batches_given >= until_batch or set(reporter.tasks_ended) == sources or running.done()

    while not is_over():
        wanted = min(until_batch, tables.batches_given + chance.randint(1, max(1, phase.batches // 2)))
        await until(lambda: is_over() or tables.batches_given >= wanted)  # noqa: B023 - waited for at once
        if not is_over():
            await checkpointing.take(execution, reporter)
    if running.done():
        return
    match phase.end:
        case End.STOPPED:
            await checkpointing.take(execution, reporter, last=True)
            await running
        case End.CRASHED_BEFORE_COMMIT:
            await checkpointing.take(execution, reporter, commit=False)
        case End.CRASHED:
            await asyncio.sleep(chance.random() * 0.01)


def started(
    engine: Engine,
    program: Program,
    tables: MemoryTables,
    cut: Cut,
    job: JobId,
    generation: int,
    checkpointing: Checkpointing,
    folder: Path,
    others: Mapping[str, Connector] = NO_OTHERS,
) -> tuple[Execution, MemoryReporter]:
    """A generation of a job, which goes on from the newest checkpoint."""
    placed = program.at_parallelism(cut.parallelism)
    checkpoints = Checkpoints(folder.as_uri(), checkpointing.restore)
    assigned = assignment(placed, job=Job(job, PipelineId.new(), Generation(generation)), checkpoints=checkpoints)
    output = NoOutput()
    own: dict[str, Connector] = {"single_file": tables, "preview": tables, "postgres": MemoryLookups()}
    connectors = {**own, **others}
    surroundings = Surroundings(engine, connectors, {}, cut.pace, lambda _table, _task: output)
    reporter = MemoryReporter()
    return Execution(assigned, surroundings, reporter), reporter
