"""An execution: the subtasks of one job that run in this worker, from their start to the end of the last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

import structlog

from penstock.common.errors import InternalError, PenstockError
from penstock.common.events import LogEvent
from penstock.worker.assignment import Assignment
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.reports import Reporter
from penstock.worker.subtask import Subtask, Surroundings
from penstock.worker.wiring import TaskId, wire

log = structlog.get_logger(__name__)


class TaskState(Enum):
    """Where a subtask is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class Execution:
    """The running subtasks of an assignment."""

    def __init__(self, assignment: Assignment, surroundings: Surroundings, reporter: Reporter) -> None:
        self.assignment = assignment
        self._surroundings = surroundings
        self._reporter = reporter
        wirings = wire(assignment.program, assignment.tasks, surroundings.pace.channel_rows)
        self._subtasks = tuple(Subtask(wiring, surroundings) for wiring in wirings)
        self._states = dict.fromkeys(assignment.tasks, TaskState.STARTING)
        self._failure: tuple[TaskId, Exception] | None = None

    @property
    def metrics(self) -> tuple[SubtaskMetrics, ...]:
        return tuple(subtask.metrics for subtask in self._subtasks)

    @property
    def states(self) -> Mapping[TaskId, TaskState]:
        return MappingProxyType(self._states)

    def stop(self) -> None:
        """Ends the sources; what is on its way arrives, and then everything has ended."""
        for subtask in self._subtasks:
            subtask.stop()

    async def run(self) -> None:
        """Runs all subtasks to their ends. One that fails ends all, and is reported; cancelling ends all at once."""
        started_at = time.monotonic()
        log.info(LogEvent.EXECUTION_STARTED, tasks=len(self._subtasks))
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch_engine(), name="engine watch")
                async with asyncio.TaskGroup() as subtasks:
                    for subtask in self._subtasks:
                        subtasks.create_task(self._run(subtask), name=str(subtask.task))
                watching.cancel()
        except ExceptionGroup:
            assert self._failure is not None
            self._report(*self._failure)
        else:
            duration_ms = round((time.monotonic() - started_at) * 1000)
            log.info(LogEvent.EXECUTION_FINISHED, duration_ms=duration_ms)

    async def _run(self, subtask: Subtask) -> None:
        task = subtask.task
        try:
            await subtask.open()
            self._states[task] = TaskState.RUNNING
            self._reporter.task_started(task)
            await subtask.run()
        except Exception as error:
            self._fail(task, error)
            raise
        finally:
            await subtask.close()
        self._states[task] = TaskState.FINISHED
        self._reporter.task_finished(task, subtask.metrics)

    async def _watch_engine(self) -> None:
        """Subtasks that wait for rows would not notice that their engine is gone."""
        error = await self._surroundings.engine.ended()
        self._fail(next(task for task, state in self._states.items() if state is not TaskState.FINISHED), error)
        raise error

    def _fail(self, task: TaskId, error: Exception) -> None:
        if self._failure is None:
            self._failure = (task, error)
            self._states[task] = TaskState.FAILED

    def _report(self, task: TaskId, error: Exception) -> None:
        if isinstance(error, PenstockError):
            log.error(LogEvent.SUBTASK_FAILED, task=str(task), domain=error.domain, reason=str(error))
            self._reporter.task_failed(task, error)
        else:
            log.error(LogEvent.SUBTASK_FAILED, task=str(task), exc_info=error)
            self._reporter.task_failed(task, InternalError(f"{type(error).__name__}: {error}"))
