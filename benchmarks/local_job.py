"""A query as a job in this process, compiled and run as services do it: what benchmarks of pipelines have in common."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

import uvloop

from penstock.common.arrow import leave_pandas_out
from penstock.common.config import load_config
from penstock.common.program import Program
from penstock.compiler.compile import QueryFunctions, compile_query
from penstock.connectors.base import Connector
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.worker.engine import Execution
from penstock.worker.settings import WorkerSettings
from penstock.worker.subtask import Surroundings
from penstock.worker.testing import MemoryReporter, NoOutput, assignment


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a benchmark as services run: on their loop, and without pandas, whose import holds up a first batch."""
    leave_pandas_out()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def compiled(engine: Engine, sql: str, functions: QueryFunctions | None = None) -> Program:
    """The program of a query."""
    compilation = await compile_query(sql, engine, functions=functions)
    if compilation.program is None:
        sys.exit("\n".join(diagnostic.message for diagnostic in compilation.diagnostics))
    return compilation.program


async def run_job(
    engine: Engine, program: Program, parallelism: int, connectors: Mapping[str, Connector] = CONNECTORS
) -> Execution:
    """Runs a program to its end, with the default settings of a worker."""
    settings = load_config(environment={}).section("worker", WorkerSettings)
    placed = program.at_parallelism(parallelism)
    output = NoOutput()
    surroundings = Surroundings(engine, connectors, os.environ, settings.pace, lambda _table, _task: output)
    reporter = MemoryReporter()
    execution = Execution(assignment(placed), surroundings, reporter)
    await execution.run()
    for task, error in reporter.failed:
        sys.exit(f"{task} failed: {error}")
    return execution
