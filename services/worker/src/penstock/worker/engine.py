"""An execution: the subtasks of one job that run in this worker, from their start to the end of the last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

import structlog

from penstock.common.crash_points import crash_point
from penstock.common.errors import InternalError, NotFound, PenstockError
from penstock.common.events import LogEvent
from penstock.worker.assignment import Assignment
from penstock.worker.functions import JobFunctions
from penstock.worker.job_checkpoints import JobCheckpoints
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.network.channels import PeerFailed
from penstock.worker.network.counters import NetworkCounters
from penstock.worker.network.exchange import Exchange
from penstock.worker.network.frames import Route
from penstock.worker.network.network import Network
from penstock.worker.reports import Reporter
from penstock.worker.signals import Barrier
from penstock.worker.steps import Step
from penstock.worker.subtask import Subtask, Surroundings
from penstock.worker.wiring import Elsewhere, TaskId, wire

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
        self._exchange = _exchange(assignment, surroundings.network)
        elsewhere = None
        if self._exchange is not None:
            elsewhere = Elsewhere({task: peer.worker for task, peer in assignment.elsewhere.items()}, self._exchange)
        wirings = wire(assignment.program, assignment.tasks, surroundings.pace, elsewhere)
        self._checkpoints = None
        if assignment.checkpoints is not None:
            self._checkpoints = JobCheckpoints(
                assignment.job.id,
                assignment.program,
                assignment.checkpoints,
                reporter,
                surroundings.storage_options,
            )
        functions = JobFunctions(assignment.program.functions, surroundings.engine, surroundings.storage_options)
        self._functions = functions
        self._subtasks = tuple(Subtask(wiring, surroundings, self._checkpoints, functions) for wiring in wirings)
        self._states = dict.fromkeys(assignment.tasks, TaskState.STARTING)
        self._failure: tuple[TaskId, Exception] | None = None

    @property
    def metrics(self) -> tuple[SubtaskMetrics, ...]:
        return tuple(subtask.metrics for subtask in self._subtasks)

    @property
    def network(self) -> NetworkCounters | None:
        """What it counts of the connections with other workers; None without any."""
        return self._exchange.counters if self._exchange is not None and self._exchange.is_needed else None

    @property
    def states(self) -> Mapping[TaskId, TaskState]:
        return MappingProxyType(self._states)

    @property
    def ended_sources(self) -> tuple[TaskId, ...]:
        """The tasks whose sources have no more rows, and that wait for the last checkpoint."""
        return tuple(subtask.task for subtask in self._subtasks if subtask.source_ended)

    def stop(self) -> None:
        """Ends the sources; what is on its way arrives, and then everything has ended."""
        for subtask in self._subtasks:
            subtask.stop()

    async def checkpoint(self, epoch: int, *, last: bool) -> None:
        """Has the sources put a barrier behind the rows that they have given."""
        for subtask in self._subtasks:
            subtask.checkpoint(Barrier(epoch, last))
        await crash_point(Step.BARRIER_INJECTED)

    async def commit(self, task: TaskId, epoch: int, data: bytes) -> None:
        """Has a sink commit what it has staged; raises NotFound when it is not here."""
        found = next((subtask for subtask in self._subtasks if subtask.task == task), None)
        if found is None:
            raise NotFound(f"the task {task} is not on this worker")
        await found.commit(epoch, data)

    async def run(self) -> None:
        """Runs all subtasks to their ends. One that fails ends all, and is reported; cancelling ends all at once."""
        started_at = time.monotonic()
        log.info(LogEvent.EXECUTION_STARTED, tasks=len(self._subtasks))
        try:
            async with asyncio.TaskGroup() as group:
                watching = [group.create_task(self._watch_engine(), name="engine watch")]
                if self._exchange is not None and self._exchange.is_needed:
                    watching.append(group.create_task(self._watch_exchange(self._exchange), name="exchange watch"))
                async with asyncio.TaskGroup() as subtasks:
                    for subtask in self._subtasks:
                        subtasks.create_task(self._run(subtask), name=str(subtask.task))
                if self._exchange is not None:
                    await self._exchange.finish()
                for watch in watching:
                    watch.cancel()
        except ExceptionGroup:
            assert self._failure is not None
            await self._leave(self._report(*self._failure))
        except asyncio.CancelledError:
            await self._leave(None)
            raise
        else:
            duration_ms = round((time.monotonic() - started_at) * 1000)
            log.info(LogEvent.EXECUTION_FINISHED, duration_ms=duration_ms)
        finally:
            self._functions.close()

    async def _run(self, subtask: Subtask) -> None:
        task = subtask.task
        try:
            await self._functions.load()
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
        self._fail(self._unfinished, error)
        raise error

    async def _watch_exchange(self, exchange: Exchange) -> None:
        """A failure of another worker is told by all in the same words: whoever is heard first, its cause is known."""
        try:
            await exchange.run()
        except PeerFailed as failure:
            task = TaskId(self.assignment.program.nodes[failure.node].key, failure.subtask)
            self._fail(task, failure.error)
            raise failure.error from None
        except Exception as error:
            self._fail(self._unfinished, error)
            raise

    @property
    def _unfinished(self) -> TaskId:
        """The one to blame for what happens to all."""
        left = (task for task, state in self._states.items() if state is not TaskState.FINISHED)
        return next(left, self.assignment.tasks[0])

    async def _leave(self, failure: tuple[TaskId, PenstockError] | None) -> None:
        """Tells other workers why this one is no more."""
        if self._exchange is None:
            return
        if failure is None:
            await self._exchange.end()
            return
        task, error = failure
        keys = [node.key for node in self.assignment.program.nodes]
        await self._exchange.end((Route(keys.index(task.node), task.subtask), error))

    def _fail(self, task: TaskId, error: Exception) -> None:
        if self._failure is None:
            self._failure = (task, error)
            if task in self._states:
                self._states[task] = TaskState.FAILED

    def _report(self, task: TaskId, error: Exception) -> tuple[TaskId, PenstockError]:
        if isinstance(error, PenstockError):
            log.error(LogEvent.SUBTASK_FAILED, task=str(task), domain=error.domain, reason=str(error))
        else:
            log.error(LogEvent.SUBTASK_FAILED, task=str(task), exc_info=error)
            error = InternalError(f"{type(error).__name__}: {error}")
        self._reporter.task_failed(task, error)
        return task, error


def _exchange(assignment: Assignment, network: Network | None) -> Exchange | None:
    if network is None or not assignment.elsewhere:
        return None
    addresses = {peer.worker: peer.address for peer in assignment.elsewhere.values()}
    return Exchange(network, assignment.job.id, assignment.job.generation, addresses)
