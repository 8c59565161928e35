"""One job under way: holds what its states decide by, does what they ask for, and goes from state to state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from penstock.common.crash_points import crash_point
from penstock.common.errors import DatabaseUnavailable, ErrorDomain, NotFound, PenstockError, RetryHint
from penstock.common.events import LogEvent
from penstock.common.ids import Epoch, NodeId, PipelineId, SavepointId, WorkerId
from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.common.program import Program
from penstock.common.proto.controller_pb2 import CheckpointStep
from penstock.controller.checkpoints.cycle import JobPorts
from penstock.controller.checkpoints.job import Checkpointing, JobCheckpoints
from penstock.controller.checkpoints.messages import Aim, Report, TaskFinished
from penstock.controller.checkpoints.restoring import CheckpointPlan
from penstock.controller.checkpoints.steps import Step
from penstock.controller.execution import Execution, Progress
from penstock.controller.placement import Shortage, count_slices, tasks_of_slices
from penstock.controller.records import Failure, JobConfig, JobStatus, TaskId, TaskOwner
from penstock.controller.registry import Registry, Worker
from penstock.controller.schedulers.base import Scheduler
from penstock.controller.settings import ControllerSettings
from penstock.controller.states import (
    checkpoint_stopping,
    compiling,
    created,
    failed,
    failing,
    finished,
    finishing,
    recovering,
    rescaling,
    restarting,
    running,
    scheduling,
    stopped,
    stopping,
)
from penstock.controller.states.failures import RestartPolicy
from penstock.controller.states.machine import Machine, Move
from penstock.controller.workers import ExecutionPlan, WorkerStatus

_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 2.0
# Of one generation; more would tell the user nothing new.
_MOST_WARNINGS: Final = 100

log = structlog.get_logger(__name__)


class Programs(Protocol):
    async def load_program(self, pipeline: PipelineId) -> Program: ...


class Workers(Protocol):
    async def start_execution(
        self, plan: ExecutionPlan, workers: Mapping[WorkerId, Worker], worker: Worker
    ) -> None: ...

    async def stop_execution(self, worker: Worker, owner: TaskOwner, mode: StopMode) -> None: ...

    async def get_status(self, worker: Worker) -> WorkerStatus: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What runners share."""

    machine: Machine
    scheduler: Scheduler
    registry: Registry
    programs: Programs
    workers: Workers
    settings: ControllerSettings
    clock: Callable[[], float]
    checkpoints: Checkpointing | None = None
    """None: jobs start over, whatever ends them."""


class JobRunner:
    """The context of every state of one job. A job that is `restored` was under way with an earlier controller."""

    def __init__(self, config: JobConfig, status: JobStatus, ports: Ports, *, restored: bool = False) -> None:
        self._config = config
        self._status = status
        self._ports = ports
        self._restoring = restored and status.state in _ON_WORKERS and status.generation > 0
        self._execution: Execution | None = None
        self._checkpoints = self._make_checkpoints()
        self._program: Program | None = None
        self._granted_at: float | None = None
        self._restart_mode = config.restart_mode
        self._entered_at = ports.clock()
        self._wake = asyncio.Event()
        self._adoptions: set[asyncio.Task[None]] = set()
        self._warnings = 0
        self._warned_of_slots = False
        self.ended = False

    async def run(self) -> None:
        """Go on until the job is at rest."""
        with (
            structlog.contextvars.bound_contextvars(job=self._config.id, pipeline=self._config.pipeline_id),
            self._ports.registry.watching_drains(self.wake),
        ):
            try:
                move = await self._restore() if self._restoring else await self._next_move()
                while move is not None:
                    await self._make(move)
                    move = await self._next_move()
            finally:
                self.ended = True
                for adoption in self._adoptions:
                    adoption.cancel()
                if self._checkpoints is not None:
                    self._checkpoints.cancel()

    # What states see

    @property
    def config(self) -> JobConfig:
        return self._config

    @property
    def status(self) -> JobStatus:
        return self._status

    @property
    def execution(self) -> Execution | None:
        return self._execution

    @property
    def progress(self) -> Progress | None:
        if self._execution is None:
            return None
        outlook = None if self._checkpoints is None else self._checkpoints.outlook
        return replace(self._execution.progress, checkpoints=outlook)

    @property
    def is_evicted(self) -> bool:
        return bool(self._drained_nodes)

    @property
    def restart_mode(self) -> RestartMode:
        return self._restart_mode

    @property
    def entered_at(self) -> float:
        return self._entered_at

    @property
    def granted_at(self) -> float | None:
        return self._granted_at

    @property
    def restart_policy(self) -> RestartPolicy:
        return self._ports.settings.restart_policy

    @property
    def start_timeout(self) -> timedelta:
        return self._ports.settings.start_timeout

    @property
    def stop_timeout(self) -> timedelta:
        return self._ports.settings.stop_timeout

    @property
    def healthy_after(self) -> timedelta:
        return self._ports.settings.healthy_after

    def now(self) -> float:
        return self._ports.clock()

    def wake(self) -> None:
        self._wake.set()

    async def wait(self, until: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(until - self.now(), 0)):
                await self._wake.wait()
        self._wake.clear()

    # What states do

    async def load_program(self) -> Program:
        delay = _FIRST_DELAY_SECONDS
        while self._program is None:
            try:
                self._program = await self._ports.programs.load_program(self._config.pipeline_id)
            except DatabaseUnavailable:
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
        return self._program

    async def launch(self) -> None:
        if self._execution is not None:  # restored
            return
        program = (await self.load_program()).at_parallelism(self._status.parallelism)
        execution = self._execution = Execution(self._status.owner, program)
        checkpoints = await self._begin_checkpoints(execution)
        owner, scheduler, registry = execution.owner, self._ports.scheduler, self._ports.registry
        grants = await scheduler.start_workers(owner, count_slices(program), self._note_shortage)
        self._granted_at = self.now()
        for grant in grants:
            execution.assign(grant.worker_id, tasks_of_slices(program, grant.slices))
        self.wake()
        arrived = await asyncio.gather(*(registry.registered(grant.worker_id) for grant in grants))
        workers = {worker.id: worker for worker in arrived}
        plan = ExecutionPlan(owner, self._config.pipeline_id, program, execution.workers, checkpoints)
        for worker in arrived:
            execution.command(worker.id)
        await crash_point(Step.BEFORE_START)
        await asyncio.gather(
            *(self._ports.workers.start_execution(plan, workers, workers[worker]) for worker in workers)
        )
        await crash_point(Step.AFTER_START)

    async def stop_execution(self, mode: StopMode) -> bool:
        execution = self._execution
        if execution is None:
            return True
        if self._checkpoints is not None:
            if mode in {StopMode.CHECKPOINT, StopMode.GRACEFUL} and not execution.adopting:
                # What has only begun can be begun again: there is nothing to save.
                mode = mode if execution.progress.all_started else StopMode.IMMEDIATE
            self._checkpoints.aim(_AIMS[mode])
            if mode is StopMode.CHECKPOINT:
                return not execution.adopting
        execution.discard_idle()
        mode = StopMode.GRACEFUL if mode is StopMode.CHECKPOINT else mode
        known = self._ports.registry.workers
        live = [known[worker] for worker in execution.live_workers if worker in known]
        outcomes = await asyncio.gather(
            *(self._ports.workers.stop_execution(worker, execution.owner, mode) for worker in live),
            return_exceptions=True,
        )
        reached = not execution.adopting
        for worker, outcome in zip(live, outcomes, strict=True):
            if isinstance(outcome, NotFound):
                # The call that was to start it never came through.
                execution.discard(worker.id)
                self.wake()
            elif isinstance(outcome, PenstockError):
                log.warning(LogEvent.WORKER_STOP_FAILED, worker=worker.id, reason=str(outcome))
                reached = False
            elif isinstance(outcome, BaseException):
                raise outcome
        return reached

    async def close_execution(self, *, force: bool) -> None:
        if self._checkpoints is not None:
            await self._checkpoints.close(f"the job was {self._status.state}")
        self._execution = None
        self._granted_at = None
        self._warned_of_slots = False
        self._warnings = 0
        if self._status.generation > 0:
            await self._ports.scheduler.stop_workers(self._status.owner, force=force)

    def aim(self, aim: Aim) -> None:
        if self._checkpoints is not None:
            self._checkpoints.aim(aim)

    def heal(self) -> None:
        self._status = self._ports.machine.heal(self._status)

    # What happens to the job

    def update(self, config: JobConfig) -> None:
        """Something else is wanted of it."""
        self._config = config
        if self._checkpoints is not None:
            self._checkpoints.update(config)
        self.wake()

    def report(self, report: Report) -> None:
        """What a task says of a checkpoint."""
        if self._checkpoints is not None:
            self._checkpoints.report(report)

    def note_step(self, epoch: Epoch, task: TaskId, step: CheckpointStep.ValueType, at_us: int) -> None:
        """How far a task is with a checkpoint."""
        if self._checkpoints is not None and self._checkpoints.cycle is not None:
            self._checkpoints.cycle.note_step(epoch, task, step, at_us)

    def judge(self, failure: Failure) -> Failure:
        """A task's failure, which may be less than fatal here."""
        return failure if self._checkpoints is None else self._checkpoints.judge(failure)

    def want_savepoint(self, savepoint: SavepointId) -> None:
        if self._checkpoints is not None:
            self._checkpoints.want_savepoint(savepoint)

    def expects(self, owner: TaskOwner) -> bool:
        """Whether reports of a generation are of the present."""
        if self._execution is not None:
            return self._execution.owner == owner
        return self._restoring and self._status.owner == owner

    def warn(self, failure: Failure) -> None:
        """Tell the user of something that did not stop the job, unless they have been told of many already."""
        self._warnings += 1
        if self._warnings <= _MOST_WARNINGS:
            self._ports.machine.warn(self._status, failure)

    def welcome(self, worker: WorkerId) -> None:
        """A worker of this generation has come back to a new controller."""
        execution = self._execution
        if execution is not None and execution.adopting and worker not in execution.workers:
            self._spawn(self._adopt(execution, worker), name=f"adopt-{worker}")

    # Going from state to state

    async def _next_move(self) -> Move | None:
        state = self._status.state
        if state in _AT_REST:
            return _AT_REST[state](self._config, self._status)
        try:
            return await _UNDER_WAY[state](self)
        except PenstockError as error:
            failure = Failure.of(error)
        except Exception as error:
            log.exception(LogEvent.STATE_CRASHED, state=state)
            message = f"the controller failed unexpectedly while the job was {state}: {type(error).__name__}"
            failure = Failure(message, None, ErrorDomain.INTERNAL, RetryHint.NEVER)
        return Move(JobState.FAILED if state is JobState.FAILING else JobState.FAILING, failure)

    async def _make(self, move: Move) -> None:
        if move.to is JobState.RESTARTING:
            self._restart_mode = restarting.derive_restart_mode(self._config, self._status)
            if self._config.restart_nonce == self._status.restart_nonce:
                self._note_eviction()
        after = self.now() - self._entered_at
        self._status = await self._ports.machine.move(self._config, self._status, move, after_seconds=after)
        self._entered_at = self.now()

    def _make_checkpoints(self) -> JobCheckpoints | None:
        shared = self._ports.checkpoints
        if shared is None or self._config.preview:
            return None
        ports = JobPorts(lambda: self._ports.registry.workers, self.warn, self.wake)
        return JobCheckpoints(self._config, shared, ports)

    async def _begin_checkpoints(self, execution: Execution) -> CheckpointPlan | None:
        checkpoints, nonce = self._checkpoints, self._config.ignore_state_nonce
        if checkpoints is None:
            return None
        if nonce != self._status.ignore_state_nonce:
            await checkpoints.forget_state()
            self._status = await self._ports.machine.forget_state(self._status, nonce)
        return await checkpoints.begin(execution)

    def _note_shortage(self, shortage: Shortage) -> None:
        log.warning(LogEvent.SLOTS_MISSING, reason=shortage.reason, generation=self._status.generation)
        if not self._warned_of_slots:
            self._warned_of_slots = True
            self.warn(Failure(shortage.reason, shortage.hint, ErrorDomain.EXTERNAL, RetryHint.BACKOFF))

    @property
    def _drained_nodes(self) -> frozenset[NodeId]:
        """The nodes that the job has to leave."""
        if self._execution is None or not self._ports.registry.draining:
            return frozenset()
        workers = self._ports.registry.workers
        nodes = (workers[worker].node_id for worker in self._execution.live_workers if worker in workers)
        return self._ports.registry.draining.intersection(node for node in nodes if node is not None)

    def _note_eviction(self) -> None:
        nodes = ", ".join(sorted(self._drained_nodes))
        then = "starts over" if self._checkpoints is None else "is saved and goes on"
        message = f"{nodes} is being drained: the job {then} elsewhere"
        self.warn(Failure(message, None, ErrorDomain.EXTERNAL, RetryHint.BACKOFF))

    # Taking over from an earlier controller

    async def _restore(self) -> Move | None:
        """Wait for the workers beside whatever the state does; those that are not back in time are lost."""
        try:
            program = (await self.load_program()).at_parallelism(self._status.parallelism)
        except PenstockError as error:
            self._restoring = False
            return Move(JobState.FAILING, Failure.of(error))
        execution = self._execution = Execution(self._status.owner, program, adopting=True)
        if self._checkpoints is not None:
            self._checkpoints.adopt(execution)
        self._restoring = False
        self._granted_at = self.now()
        for worker, owner in tuple(self._ports.registry.owners.items()):
            if owner == execution.owner:
                self.welcome(worker)
        self._spawn(self._await_workers(execution), name=f"adopt-{self._config.id}")
        return await self._next_move()

    async def _await_workers(self, execution: Execution) -> None:
        await asyncio.sleep(self._ports.settings.adopt_timeout.total_seconds())
        if execution.adopting:
            missing = execution.missing_tasks
            execution.record_failure(
                Failure.lost(f"{missing} of {len(execution.tasks)} tasks did not come back after a controller restart")
            )
            execution.adopting = False
            self.wake()

    async def _adopt(self, execution: Execution, worker_id: WorkerId) -> None:
        worker = await self._ports.registry.registered(worker_id)
        while execution.adopting:
            try:
                status = await self._ports.workers.get_status(worker)
            except PenstockError:
                await asyncio.sleep(_FIRST_DELAY_SECONDS)
            else:
                self._take_over(execution, worker_id, status)
                return

    def _take_over(self, execution: Execution, worker: WorkerId, status: WorkerStatus) -> None:
        execution.assign(worker, status.tasks)
        execution.command(worker)
        for task in status.started:
            execution.record_started(task)
        for task in status.finished:
            execution.record_finished(task)
            self.report(TaskFinished(task))
        for task in status.failed:
            # Its own report comes again if it was not heard, and says more.
            execution.record_failure(replace(Failure.lost("the task failed"), task=task))
        if execution.missing_tasks == 0:
            execution.adopting = False
            if self._checkpoints is not None:
                self._checkpoints.adopted()
            log.info(LogEvent.JOB_ADOPTED, generation=execution.owner.generation, workers=len(execution.workers))
        self.wake()

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._adoptions.add(task)
        task.add_done_callback(self._adoptions.discard)


_UNDER_WAY: Final[Mapping[JobState, Callable[[JobRunner], Awaitable[Move]]]] = MappingProxyType(
    {
        JobState.CREATED: created.run,
        JobState.COMPILING: compiling.run,
        JobState.SCHEDULING: scheduling.run,
        JobState.RUNNING: running.run,
        JobState.CHECKPOINT_STOPPING: checkpoint_stopping.run,
        JobState.STOPPING: stopping.run,
        JobState.RESCALING: rescaling.run,
        JobState.RECOVERING: recovering.run,
        JobState.RESTARTING: restarting.run,
        JobState.FINISHING: finishing.run,
        JobState.FAILING: failing.run,
    }
)
_AIMS: Final[Mapping[StopMode, Aim]] = MappingProxyType(
    {
        StopMode.CHECKPOINT: Aim.STOP,
        StopMode.GRACEFUL: Aim.DRAIN,
        StopMode.IMMEDIATE: Aim.NONE,
        StopMode.FORCE: Aim.NONE,
    }
)
_AT_REST: Final[Mapping[JobState, Callable[[JobConfig, JobStatus], Move | None]]] = MappingProxyType(
    {JobState.STOPPED: stopped.decide, JobState.FINISHED: finished.decide, JobState.FAILED: failed.decide}
)
_ON_WORKERS: Final = frozenset(
    {
        JobState.SCHEDULING,
        JobState.RUNNING,
        JobState.CHECKPOINT_STOPPING,
        JobState.STOPPING,
        JobState.RESCALING,
        JobState.RESTARTING,
        JobState.FINISHING,
    }
)


def wants_to_run(config: JobConfig, status: JobStatus) -> bool:
    """Whether there is something to do for a job."""
    return status.state not in _AT_REST or _AT_REST[status.state](config, status) is not None
