"""A query as a job in this process, compiled and run as services do it: what benchmarks of pipelines have in common."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

from penstock.common.config import load_config
from penstock.common.ids import Generation, JobId, PipelineId
from penstock.common.program import Program
from penstock.compiler.compile import compile_query
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.worker.assignment import Assignment, Job
from penstock.worker.engine import Execution
from penstock.worker.settings import WorkerSettings
from penstock.worker.subtask import Surroundings
from penstock.worker.testing import MemoryReporter, NoOutput
from penstock.worker.wiring import TaskId


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a benchmark on the loop that services run on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def compiled(engine: Engine, sql: str) -> Program:
    """The program of a query."""
    compilation = await compile_query(sql, engine)
    if compilation.program is None:
        sys.exit("\n".join(diagnostic.message for diagnostic in compilation.diagnostics))
    return compilation.program


async def run_job(engine: Engine, program: Program, parallelism: int) -> Execution:
    """Runs a program to its end, with the default settings of a worker."""
    settings = load_config(environment={}).section("worker", WorkerSettings)
    placed = program.at_parallelism(parallelism)
    tasks = tuple(TaskId(node.key, subtask) for node in placed.nodes for subtask in range(node.parallelism))
    assignment = Assignment(Job(JobId.new(), PipelineId.new(), Generation(1)), placed, tasks)
    output = NoOutput()
    surroundings = Surroundings(engine, CONNECTORS, os.environ, settings.pace, lambda _table, _task: output)
    reporter = MemoryReporter()
    execution = Execution(assignment, surroundings, reporter)
    await execution.run()
    for task, error in reporter.failed:
        sys.exit(f"{task} failed: {error}")
    return execution
