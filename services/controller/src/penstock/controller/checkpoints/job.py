"""The checkpoints of one job, over its generations: what its runner knows of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from penstock.common.checkpoint.metadata import CorruptSnapshot
from penstock.common.checkpoint.settings import CheckpointSettings
from penstock.common.errors import DatabaseUnavailable, PenstockError, RetryHint
from penstock.common.events import LogEvent
from penstock.common.ids import JobId, SavepointId
from penstock.controller.checkpoints.coordinator import Outlook, Policy
from penstock.controller.checkpoints.cycle import CheckpointCycle, CyclePorts, JobPorts
from penstock.controller.checkpoints.messages import Aim, Aimed, IntervalChanged, Report, SavepointWanted
from penstock.controller.checkpoints.records import CheckpointRecord, CheckpointState
from penstock.controller.checkpoints.restoring import CheckpointPlan, Checkpoints, Origin, Restorer
from penstock.controller.execution import Execution
from penstock.controller.records import Entry, Failure, JobConfig

_RETRY_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


class Store(Checkpoints, Protocol):
    async def forget_state(self, job: JobId) -> None: ...


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """What all jobs share that have checkpoints."""

    settings: CheckpointSettings
    store: Store
    cycle: CyclePorts


class JobCheckpoints:
    """Has a cycle while there is an execution."""

    def __init__(self, config: JobConfig, shared: Checkpointing, ports: JobPorts) -> None:
        self._config = config
        self._shared = shared
        self._ports = ports
        self._execution: Execution | None = None
        self._cycle: CheckpointCycle | None = None
        self._origin: Origin | None = None
        self._adopting: asyncio.Task[None] | None = None
        self._aim = Aim.NONE

    @property
    def outlook(self) -> Outlook | None:
        return None if self._cycle is None else self._cycle.outlook

    @property
    def cycle(self) -> CheckpointCycle | None:
        return self._cycle

    def update(self, config: JobConfig) -> None:
        changed = config.checkpoint_interval_ms != self._config.checkpoint_interval_ms
        self._config = config
        if changed:
            self.report(IntervalChanged(config.checkpoint_interval_ms / 1000))

    def report(self, report: Report) -> None:
        if self._cycle is not None:
            self._cycle.report(report)

    def aim(self, aim: Aim) -> None:
        """What the job's state wants; while workers are coming back to a new controller it has to wait."""
        self._aim = aim
        if self._execution is not None and not self._execution.adopting:
            self.report(Aimed(aim))

    def adopted(self) -> None:
        """All workers are back."""
        self.report(Aimed(self._aim))

    def want_savepoint(self, savepoint: SavepointId) -> None:
        self.report(SavepointWanted(savepoint))

    async def forget_state(self) -> None:
        """Start from the very beginning."""
        await self._shared.store.forget_state(self._config.id)

    async def begin(self, execution: Execution) -> CheckpointPlan:
        """Find where a generation begins."""
        origin = await self._find_origin(execution)
        self._origin = origin
        self._open(execution).open(origin.past, self._policy, origin.completed)
        return origin.plan

    def adopt(self, execution: Execution) -> None:
        """Take over those of a generation that is on its workers already."""
        adopting = self._adopt(execution, self._open(execution))
        self._adopting = asyncio.create_task(adopting, name=f"checkpoints-{execution.owner}-adopt")

    async def close(self, reason: str) -> None:
        """The execution is over."""
        if self._adopting is not None:
            self._adopting.cancel()
            await asyncio.wait({self._adopting})
        if self._cycle is not None:
            await self._cycle.close(reason)
        self._adopting = self._cycle = self._execution = self._origin = None
        self._aim = Aim.NONE

    def cancel(self) -> None:
        """The controller ends, and leaves everything as it is."""
        if self._adopting is not None:
            self._adopting.cancel()
        if self._cycle is not None:
            self._cycle.cancel()

    def judge(self, failure: Failure) -> Failure:
        """What a task's failure is: if it is that of a damaged checkpoint, there may be an older one to go on from."""
        origin = self._origin
        if origin is None or self._aim is not Aim.NONE or not self._config.allow_fallback:
            return failure
        damaged = failure.is_fatal and origin.plan.url in failure.message
        if not damaged or len(origin.completed) < 2:
            return failure
        self._origin = None
        record = replace(origin.completed[-1], state=CheckpointState.ABANDONED, error=failure.message)
        log.warning(LogEvent.CHECKPOINT_DAMAGED, epoch=record.epoch, reason=failure.message)
        self._shared.cycle.journal.append(Entry(record.job_id, None, (), record))
        return replace(failure, retry=RetryHint.BACKOFF)

    @property
    def _policy(self) -> Policy:
        settings = self._shared.settings
        return Policy(
            interval_seconds=self._config.checkpoint_interval_ms / 1000,
            timeout_seconds=settings.timeout.total_seconds(),
            max_failures=settings.max_failures,
            retained=settings.retained,
        )

    @property
    def _restorer(self) -> Restorer:
        cycle = self._shared.cycle

        async def write(record: CheckpointRecord) -> None:
            await cycle.journal.write(Entry(record.job_id, None, (), record))

        return Restorer(cycle.storage, self._shared.store, write, cycle.wall_clock, self._ports.warn)

    def _open(self, execution: Execution) -> CheckpointCycle:
        self._execution = execution
        self._cycle = CheckpointCycle(execution, self._shared.cycle, self._ports)
        return self._cycle

    async def _find_origin(self, execution: Execution) -> Origin:
        while True:
            try:
                return await self._restorer.find_origin(self._config, execution.program)
            except DatabaseUnavailable:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _adopt(self, execution: Execution, cycle: CheckpointCycle) -> None:
        told = False
        while True:
            try:
                past, completed = await self._restorer.find_past(execution.owner)
            except CorruptSnapshot as error:
                execution.record_failure(Failure.of(error))
                self._ports.wake()
                return
            except PenstockError as error:
                # The job runs on without checkpoints until they can be known.
                if not told:
                    log.warning(LogEvent.CHECKPOINTS_UNKNOWN, reason=error.message)
                told = True
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                cycle.open(past, self._policy, completed)
                return
