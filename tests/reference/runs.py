"""Runs a compiled query in this process, as a worker would, over tables in memory that are cut in some way."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import pyarrow as pa
from reference.data import TABLES, Dataset
from reference.lookups import DECLARED, MemoryLookups
from reference.memory import MemoryTables

from penstock.common.config import load_config
from penstock.common.diagnostics import Severity
from penstock.common.program import Program
from penstock.common.storage import open_storage
from penstock.compiler.compile import QueryFunctions, compile_query
from penstock.compiler.udfs import Udfs
from penstock.connectors.base import Connector
from penstock.spark import Engine
from penstock.worker.engine import Execution
from penstock.worker.pace import Pace
from penstock.worker.settings import WorkerSettings
from penstock.worker.subtask import Surroundings
from penstock.worker.testing import MemoryReporter, NoOutput, assignment
from penstock.worker.testing_workers import Executions, run_on_workers

_DEADLINE_SECONDS: Final = 240.0


@dataclass(frozen=True)
class Cut:
    """How a job's work is cut: what its results must not depend on."""

    parallelism: int
    batch_rows: int

    def __str__(self) -> str:
        return f"p{self.parallelism}-b{self.batch_rows}"

    @property
    def pace(self) -> Pace:
        pace = load_config(environment={}).section("worker", WorkerSettings).pace
        # Small batches are flushed at once, so that updating results change as often as they can.
        flush = 0.0 if self.batch_rows < 100 else pace.updating_flush_seconds
        return replace(
            pace,
            batch_rows=self.batch_rows,
            channel_rows=2 * self.batch_rows,
            linger_seconds=0.0,
            updating_flush_seconds=flush,
        )


@dataclass(frozen=True)
class Spread(Cut):
    """A cut whose slices are on several workers."""

    workers: int = 3

    def __str__(self) -> str:
        return f"p{self.parallelism}-b{self.batch_rows}-w{self.workers}"


@dataclass(frozen=True)
class Outcome:
    """What a job wrote, in the order of its writing."""

    batches: tuple[pa.RecordBatch, ...]
    batches_read: int
    late_rows: int


class NotCompiled(AssertionError):
    """The compiler refused a query."""


class NotRun(AssertionError):
    """A job failed."""


@cache
def functions() -> QueryFunctions:
    """Where the Python functions of queries are kept while this process runs."""
    return QueryFunctions(Udfs(open_storage(_folder.name)))


_folder = tempfile.TemporaryDirectory(prefix="penstock-reference-")


async def compiled(engine: Engine, sql: str, tables: str = TABLES) -> Program:
    """The program of a query over the tables of `data`."""
    compilation = await compile_query(tables + DECLARED + sql, engine, functions=functions())
    if compilation.program is None:
        errors = [found for found in compilation.diagnostics if found.severity is Severity.ERROR]
        raise NotCompiled("\n".join(f"{found.code}: {found.message} ({found.hint})" for found in errors))
    return compilation.program


async def run(engine: Engine, program: Program, data: Dataset, cut: Cut) -> Outcome:
    """Runs a program that reads tables of a dataset to its end."""
    tables = MemoryTables(data, cut.batch_rows)
    execution = await run_job(
        engine, program, cut, {"single_file": tables, "preview": tables, "postgres": MemoryLookups()}
    )
    late_rows = sum(metrics.late_rows for metrics in execution.metrics)
    return Outcome(tuple(tables.written), tables.batches_read, late_rows)


async def run_job(
    engine: Engine, program: Program, cut: Cut, connectors: Mapping[str, Connector]
) -> Execution | Executions:
    """Runs a program to its end with these connectors; raises what a subtask fails with."""
    placed = program.at_parallelism(cut.parallelism)
    output = NoOutput()
    surroundings = Surroundings(engine, connectors, {}, cut.pace, lambda _table, _task: output)
    reporter = MemoryReporter()
    async with asyncio.timeout(_DEADLINE_SECONDS):
        if isinstance(cut, Spread):
            execution: Execution | Executions = await run_on_workers(
                assignment(placed), surroundings, reporter, workers=cut.workers
            )
        else:
            execution = Execution(assignment(placed), surroundings, reporter)
            await execution.run()
    for task, error in reporter.failed:
        raise NotRun(f"{task} failed: {error}")
    return execution
