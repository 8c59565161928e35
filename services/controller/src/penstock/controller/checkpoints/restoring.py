"""What a generation goes on from: settles what was left under way, and finds the newest checkpoint that can be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from penstock.common.checkpoint.matching import match_state
from penstock.common.checkpoint.metadata import (
    CorruptSnapshot,
    Snapshot,
    check_files,
    is_complete,
    read_snapshot,
)
from penstock.common.checkpoint.paths import metadata_path
from penstock.common.crash_points import crash_point
from penstock.common.errors import NotFound, UserError
from penstock.common.events import LogEvent
from penstock.common.ids import JobId, SavepointId
from penstock.common.program import Program
from penstock.common.storage import Storage
from penstock.controller.checkpoints.coordinator import Past, Unfinished
from penstock.controller.checkpoints.records import CheckpointRecord, CheckpointState, SavepointRecord, SavepointState
from penstock.controller.checkpoints.snapshots import derive_staged
from penstock.controller.checkpoints.steps import Step
from penstock.controller.checkpoints.store import KnownCheckpoints
from penstock.controller.records import Failure, JobConfig, TaskOwner

log = structlog.get_logger(__name__)


class Checkpoints(Protocol):
    async def known(self, job: JobId) -> KnownCheckpoints: ...

    async def savepoint(self, savepoint: SavepointId) -> SavepointRecord | None: ...


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """What workers are told: where the job's folder is, and what to start from."""

    url: str
    restore: str = ""
    restore_url: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a generation begins."""

    plan: CheckpointPlan
    past: Past
    completed: tuple[CheckpointRecord, ...] = ()
    """The last of them is what is restored."""


@dataclass(frozen=True, slots=True)
class Restorer:
    """Reads and settles the checkpoints of one job; `storage` is that of all jobs."""

    storage: Storage
    store: Checkpoints
    write: Callable[[CheckpointRecord], Awaitable[None]]
    """Returns when the row is in Postgres."""
    wall_clock: Callable[[], datetime]
    warn: Callable[[Failure], None]

    async def find_origin(self, config: JobConfig, program: Program) -> Origin:
        """The newest completed checkpoint, the savepoint that the job begins with, or its very beginning."""
        folder = self.storage.child(config.id)
        known = await self._settle(await self.store.known(config.id))
        completed = list(known.completed)
        while completed:
            record = completed[-1]
            try:
                snapshot = await read_snapshot(folder, metadata_path(record.path))
                await check_files(folder, snapshot)
            except CorruptSnapshot as error:
                if not config.allow_fallback or len(completed) == 1:
                    raise
                completed.pop()
                await self._set_aside(record, error)
                continue
            log.info(LogEvent.CHECKPOINT_RESTORED, epoch=record.epoch)
            uncommitted = record.epoch if record.state is CheckpointState.COMMITTING else None
            past = Past(known.last_epoch, tuple(each.epoch for each in completed), uncommitted)
            return Origin(CheckpointPlan(folder.url, metadata_path(record.path)), past, tuple(completed))
        past = Past(known.last_epoch)
        if config.restore_from is None or config.ignore_state_nonce:
            return Origin(CheckpointPlan(folder.url), past)
        return Origin(await self._start_from(config.restore_from, folder.url, program), past)

    async def find_past(self, owner: TaskOwner) -> tuple[Past, tuple[CheckpointRecord, ...]]:
        """The past of a generation that is on its workers already, and the checkpoints that it has completed."""
        known = await self._settle(await self.store.known(owner.job_id))
        own = [record for record in known.completed if record.generation == owner.generation]
        unfinished = next((record for record in own if record.state is CheckpointState.COMMITTING), None)
        uncommitted = [r.epoch for r in known.completed if r not in own and r.state is CheckpointState.COMMITTING]
        past = Past(
            last_epoch=known.last_epoch,
            completed=tuple(record.epoch for record in known.completed),
            uncommitted=uncommitted[-1] if uncommitted else None,
            unfinished=None if unfinished is None else await self._unfinished(unfinished),
            final=next((r.epoch for r in own if r.then_stop and r.state is CheckpointState.READY), None),
        )
        return past, known.completed

    async def _settle(self, known: KnownCheckpoints) -> KnownCheckpoints:
        """What was under way is complete if its metadata is there, and else it is nothing."""
        live: list[CheckpointRecord] = []
        for record in known.live:
            settled = record
            if record.state is CheckpointState.INPROGRESS:
                complete = await is_complete(self.storage.child(record.job_id), record.path)
                settled = self._completed(record) if complete else self._interrupted(record)
                await crash_point(Step.BEFORE_RESOLVE)
                await self.write(settled)
                await crash_point(Step.AFTER_RESOLVE)
            live.append(settled)
        return replace(known, live=tuple(live))

    def _completed(self, record: CheckpointRecord) -> CheckpointRecord:
        return replace(record, state=CheckpointState.COMMITTING)

    def _interrupted(self, record: CheckpointRecord) -> CheckpointRecord:
        # A savepoint that it was for is still wanted, from another.
        return replace(
            record,
            state=CheckpointState.ABANDONED,
            savepoint_id=None,
            finished_at=self.wall_clock(),
            error="it was interrupted",
        )

    async def _set_aside(self, record: CheckpointRecord, error: CorruptSnapshot) -> None:
        log.warning(LogEvent.CHECKPOINT_DAMAGED, epoch=record.epoch, reason=error.message)
        await self.write(replace(record, state=CheckpointState.ABANDONED, error=error.message))
        message = f"checkpoint {record.epoch} cannot be restored, the job goes on from an older one: {error.message}"
        self.warn(replace(Failure.of(error), message=message))

    async def _unfinished(self, record: CheckpointRecord) -> Unfinished:
        snapshot = await read_snapshot(self.storage.child(record.job_id), metadata_path(record.path))
        return Unfinished(record.epoch, record.then_stop, derive_staged(snapshot))

    async def _start_from(self, wanted: SavepointId, url: str, program: Program) -> CheckpointPlan:
        savepoint = await self.store.savepoint(wanted)
        if savepoint is None or savepoint.path is None or savepoint.state is not SavepointState.READY:
            raise NotFound(f"there is no savepoint {wanted}")
        folder = self.storage.child(savepoint.job_id)
        snapshot = await read_snapshot(folder, metadata_path(savepoint.path))
        await check_files(folder, snapshot)
        _check_state(snapshot, program, savepoint)
        log.info(LogEvent.CHECKPOINT_RESTORED, savepoint=wanted)
        return CheckpointPlan(url, metadata_path(savepoint.path), "" if folder.url == url else folder.url)


def _check_state(snapshot: Snapshot, program: Program, savepoint: SavepointRecord) -> None:
    incompatible = match_state(snapshot.operators, program).incompatible
    if incompatible:
        names = {operator.key: operator.description for node in program.nodes for operator in node.operators}
        which = ", ".join(f"{key} ({names[key]})" for key in incompatible)
        raise UserError(f"the query cannot go on from savepoint {savepoint.name}: the state of {which} does not fit it")
