"""A worker's life: a standby until it is given a job, which it runs, and then it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, assert_never

import structlog

from penstock.common.errors import InternalError, NotFound
from penstock.common.events import LogEvent
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.common.telemetry import bind_job
from penstock.connectors.base import Connector
from penstock.worker.assignment import Assignment, Job
from penstock.worker.engine import Execution
from penstock.worker.network.network import Network
from penstock.worker.operators.opening import open_operator
from penstock.worker.pace import Pace
from penstock.worker.preview import PreviewOutput
from penstock.worker.reports import Reporter
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.subtask import FragmentEngine, Surroundings

log = structlog.get_logger(__name__)


class StopMode(Enum):
    """How an execution is asked to end: after what is on its way has arrived, or at once."""

    GRACEFUL = "graceful"
    IMMEDIATE = "immediate"


@dataclass(frozen=True, slots=True)
class Tools:
    """What a worker has, whichever job it gets."""

    engine: FragmentEngine
    connectors: Mapping[str, Connector]
    environment: Mapping[str, str]
    pace: Pace
    updating_ttl_ms: int = 0
    """How long keys are kept that nothing touches, where the query does not say; 0: for ever."""
    budget: Budget = UNLIMITED
    storage_options: Mapping[str, str] = field(default_factory=dict)
    """How the checkpoint storage is reached."""
    network: Network | None = None
    """How other workers are reached."""


class Worker:
    """Runs one job."""

    def __init__(self, id: WorkerId, tools: Tools, reporter_of: Callable[[Job], Reporter]) -> None:
        self.id = id
        self._tools = tools
        self._reporter_of = reporter_of
        self._execution: Execution | None = None
        self._reporter: Reporter | None = None
        self._assigned = asyncio.Event()
        self._halted = asyncio.Event()
        self._fenced = asyncio.Event()

    @property
    def execution(self) -> Execution | None:
        """What it runs or has run; None of a standby."""
        return self._execution

    @property
    def job(self) -> Job | None:
        """The job that it has or had."""
        return None if self._execution is None else self._execution.assignment.job

    def start(self, assignment: Assignment) -> None:
        """Takes the job. The same job again changes nothing, so that a call can be repeated."""
        if self.job == assignment.job:
            return
        if self.job is not None or self._fenced.is_set():
            raise InternalError(f"the worker {self.id} is not free for job {assignment.job.id}")
        reporter = self._reporter_of(assignment.job)
        tools = self._tools
        surroundings = Surroundings(
            tools.engine,
            tools.connectors,
            tools.environment,
            tools.pace,
            lambda table, task: PreviewOutput(reporter, table, task),
            partial(open_operator, updating_ttl_ms=tools.updating_ttl_ms, budget=tools.budget),
            tools.storage_options,
            tools.network,
        )
        self._execution = Execution(assignment, surroundings, reporter)
        self._reporter = reporter
        self._assigned.set()

    def stop(self, job: JobId, generation: Generation, mode: StopMode) -> None:
        """Ends the job's subtasks."""
        execution = self.execution_of(job, generation)
        log.info(LogEvent.EXECUTION_STOPPING, job=job, mode=mode.value)
        match mode:
            case StopMode.GRACEFUL:
                execution.stop()
            case StopMode.IMMEDIATE:
                self._halted.set()
            case _:
                assert_never(mode)

    def execution_of(self, job: JobId, generation: Generation) -> Execution:
        """What it runs, if that is a generation of a job; raises NotFound."""
        execution = self._execution
        if execution is None or (execution.assignment.job.id, execution.assignment.job.generation) != (job, generation):
            raise NotFound(f"the worker {self.id} does not run generation {generation} of job {job}")
        return execution

    def report_ended_again(self) -> None:
        """A controller that has come back does not know which sources have no more rows."""
        if self._execution is not None and self._reporter is not None:
            for task in self._execution.ended_sources:
                self._reporter.task_ended(task)

    def fence(self) -> None:
        """Ends everything without a report: the job belongs to others now."""
        if not self._fenced.is_set():
            log.warning(LogEvent.WORKER_FENCED, worker=self.id)
        self._fenced.set()
        self._halted.set()
        self._assigned.set()

    async def run(self) -> None:
        """Waits for a job and runs it until it has ended in any way."""
        await self._assigned.wait()
        if self._execution is None or self._reporter is None:
            return
        job = self._execution.assignment.job
        with bind_job(job=job.id, pipeline=job.pipeline, generation=job.generation):
            await _until(self._halted, self._execution.run())
            if not self._fenced.is_set():
                self._reporter.worker_finished()
                await _until(self._fenced, self._reporter.delivered())


async def _until(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Does some work to its end, or until an event; cancelled work has ended when this returns."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
    if not working.cancelled():
        working.result()
