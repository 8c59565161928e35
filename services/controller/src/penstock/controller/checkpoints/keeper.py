"""Looks after completed checkpoints in the background: makes and deletes savepoints, and deletes what nobody needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable
from datetime import timedelta
from typing import Final, Protocol

import structlog

from penstock.common.checkpoint.metadata import CorruptSnapshot, Snapshot, read_snapshot, refers
from penstock.common.checkpoint.paths import CHECKPOINTS, SnapshotPath, metadata_path, savepoint_path
from penstock.common.crash_points import crash_point
from penstock.common.errors import DatabaseUnavailable, ExternalError, PenstockError
from penstock.common.events import LogEvent
from penstock.common.ids import Epoch, JobId, SavepointId
from penstock.common.storage import Storage
from penstock.controller.checkpoints.garbage import derive_garbage, derive_kept
from penstock.controller.checkpoints.records import (
    CheckpointRecord,
    CheckpointState,
    SavepointRecord,
    SavepointRequest,
    SavepointState,
)
from penstock.controller.checkpoints.snapshots import copy_snapshot
from penstock.controller.checkpoints.steps import Step

_DATABASE: Final = "database"
_HISTORY: Final = 1000
_DELETED_AT_ONCE: Final = 1000

log = structlog.get_logger(__name__)


class Store(Protocol):
    async def completed(self, job: JobId) -> tuple[CheckpointRecord, ...]: ...

    async def expire(self, job: JobId, epochs: Collection[Epoch], kept: int) -> None: ...

    async def deleted_jobs(self) -> tuple[JobId, ...]: ...

    async def drop(self, job: JobId) -> None: ...

    async def find_deleted_jobs(self) -> None:
        """Have `deleted_jobs` name those too that an earlier controller left."""

    async def confirm_leader(self) -> None:
        """Return if files may be deleted."""

    async def open_requests(self) -> tuple[SavepointRequest, ...]: ...

    async def ready_savepoints(self, job: JobId) -> tuple[SavepointRecord, ...]: ...

    async def save_savepoint(self, savepoint: SavepointRecord) -> None: ...

    async def savepoint_users(self, savepoint: SavepointId) -> tuple[JobId, ...]: ...

    async def checkpoint_for(self, savepoint: SavepointId) -> CheckpointRecord | None: ...


class Jobs(Protocol):
    def want_savepoint(self, job: JobId, savepoint: SavepointId) -> bool:
        """Have a job make a checkpoint for a savepoint; False when it is at rest."""

    def is_under_way(self, job: JobId) -> bool: ...


class Keeper:
    """One thing after the other, so that nothing is deleted that is about to be needed. Whatever fails is tried again,
    and holds up no checkpoint."""

    def __init__(self, storage: Storage, store: Store, *, retained: int, interval: timedelta) -> None:
        self._storage = storage
        self._store = store
        self._retained = retained
        self._interval = interval
        self._untidy: set[JobId] = set()
        self._files: dict[tuple[JobId, SnapshotPath], frozenset[str]] = {}
        self._failing: set[str] = set()
        self._is_searched = False

    def remember(self, job: JobId, snapshot: Snapshot) -> None:
        """What a snapshot refers to, so that it need not be read."""
        self._files[job, snapshot.path] = refers(snapshot)

    def tidy(self, job: JobId) -> None:
        """A checkpoint has become ready."""
        self._untidy.add(job)

    async def run(self, jobs: Jobs) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            try:
                await self._look(jobs)
                self._failing.discard(_DATABASE)
            except DatabaseUnavailable as error:
                self._note_failure(_DATABASE, error)

    async def _look(self, jobs: Jobs) -> None:
        if not self._is_searched:
            await self._store.find_deleted_jobs()
            self._is_searched = True
        requests = await self._store.open_requests()
        for request in requests:
            await self._attempt(request.id, self._delete(request) if request.deleted else self._serve(request, jobs))
        wanted = frozenset(request.id for request in requests if not request.deleted)
        for job in tuple(self._untidy):
            self._untidy.discard(job)
            is_tidy = False
            try:
                is_tidy = await self._attempt(job, self._collect(job, wanted))
            finally:
                self._untidy |= set() if is_tidy else {job}
        for job in await self._store.deleted_jobs():
            # One that is still ending may yet write something.
            if not jobs.is_under_way(job):
                await self._attempt(job, self._sweep(job))

    async def _attempt(self, subject: str, work: Awaitable[None]) -> bool:
        try:
            await work
        except DatabaseUnavailable:
            raise
        except PenstockError as error:
            self._note_failure(subject, error)
            return False
        self._failing.discard(subject)
        return True

    def _note_failure(self, subject: str, error: PenstockError) -> None:
        if subject not in self._failing:
            log.warning(LogEvent.KEEPING_FAILED, subject=subject, reason=error.message)
        self._failing.add(subject)

    # Savepoints

    async def _serve(self, request: SavepointRequest, jobs: Jobs) -> None:
        if request.pipeline_id is None:
            return await self._refuse(request, f"there is no job {request.job_id}")
        if request.preview:
            return await self._refuse(request, "a preview has no checkpoints")
        if any(each.name == request.name for each in await self._store.ready_savepoints(request.job_id)):
            return None  # that one is being deleted
        record = await self._store.checkpoint_for(request.id)
        if record is not None and record.state is CheckpointState.READY:
            return await self._make(request, record)
        if record is not None and record.state is CheckpointState.ABANDONED:
            return await self._refuse(request, record.error or "its checkpoint was abandoned")
        if jobs.want_savepoint(request.job_id, request.id):
            return None
        completed = await self._store.completed(request.job_id)
        if not completed:
            return await self._refuse(request, "the job is not running, and has no checkpoint")
        return await self._make(request, completed[-1])

    async def _make(self, request: SavepointRequest, record: CheckpointRecord) -> None:
        await crash_point(Step.BEFORE_SAVEPOINT)
        folder = self._storage.child(request.job_id)
        try:
            snapshot = await read_snapshot(folder, metadata_path(record.path))
        except CorruptSnapshot as error:
            return await self._refuse(request, error.message)
        copy = await copy_snapshot(folder, snapshot, savepoint_path(request.name))
        self.remember(request.job_id, copy)
        made = SavepointRecord(
            request.id,
            request.job_id,
            request.pipeline_id,
            request.name,
            SavepointState.READY,
            record.epoch,
            copy.path,
            count_bytes(copy),
        )
        await self._store.save_savepoint(made)
        await crash_point(Step.AFTER_SAVEPOINT)
        log.info(LogEvent.SAVEPOINT_MADE, savepoint=request.id, job=request.job_id, epoch=record.epoch)

    async def _refuse(self, request: SavepointRequest, reason: str) -> None:
        log.warning(LogEvent.SAVEPOINT_FAILED, savepoint=request.id, job=request.job_id, reason=reason)
        await self._store.save_savepoint(_without_files(request, SavepointState.FAILED, reason))

    async def _delete(self, request: SavepointRequest) -> None:
        made = request.made
        if made is None or made.path is None:
            await self._store.save_savepoint(_without_files(request, SavepointState.DELETED))
            return
        users = await self._store.savepoint_users(request.id)
        if users:
            raise ExternalError(f"savepoint {request.id} is still needed by {', '.join(users)}")
        await crash_point(Step.BEFORE_SAVEPOINT_DELETE)
        folder = self._storage.child(request.job_id)
        await self._store.confirm_leader()
        await folder.delete(metadata_path(made.path))
        await self._delete_all(folder, [path async for path in _paths(folder, made.path)])
        await crash_point(Step.AFTER_SAVEPOINT_FILES)
        self._files.pop((request.job_id, made.path), None)
        await self._store.save_savepoint(_without_files(request, SavepointState.DELETED))
        await crash_point(Step.AFTER_SAVEPOINT_DELETE)
        log.info(LogEvent.SAVEPOINT_DELETED, savepoint=request.id, job=request.job_id)
        if request.pipeline_id is None:
            await self._sweep(request.job_id)
        else:
            self._untidy.add(request.job_id)

    # Files that nobody needs

    async def _collect(self, job: JobId, wanted: Collection[SavepointId]) -> None:
        """Keep the newest checkpoints, and whatever they and the savepoints refer to."""
        completed = await self._store.completed(job)
        for_savepoints = {record.epoch for record in completed if record.savepoint_id in wanted}
        kept = derive_kept((record.epoch for record in completed), self._retained, for_savepoints)
        folder = self._storage.child(job)
        needed = await self._needed(job, (record.path for record in completed if record.epoch in kept))
        expired = [record for record in completed if record.epoch not in kept]
        if expired:
            await crash_point(Step.BEFORE_EXPIRE)
            await self._store.expire(job, [record.epoch for record in expired], _HISTORY)
            await crash_point(Step.AFTER_EXPIRE)
        for record in expired:
            self._files.pop((job, record.path), None)
        paths = [path async for path in _paths(folder, CHECKPOINTS)]
        garbage = list(derive_garbage(paths, kept, needed))
        await self._delete_all(folder, garbage)
        if garbage:
            log.debug(LogEvent.GARBAGE_COLLECTED, job=job, files=len(garbage))

    async def _sweep(self, job: JobId) -> None:
        """Of a job that is no more, its savepoints are left."""
        folder = self._storage.child(job)
        needed = await self._needed(job, ())
        await self._delete_all(folder, [path async for path in _paths(folder, "") if path not in needed])
        await self._store.drop(job)
        self._files = {key: files for key, files in self._files.items() if key[0] != job}
        self._untidy.discard(job)

    async def _delete_all(self, folder: Storage, paths: list[str]) -> None:
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            await crash_point(Step.BEFORE_DELETE)
            await self._store.confirm_leader()
            await folder.delete(*paths[start : start + _DELETED_AT_ONCE])
            await crash_point(Step.AFTER_DELETE)

    async def _needed(self, job: JobId, kept: Iterable[SnapshotPath]) -> frozenset[str]:
        savepoints = await self._store.ready_savepoints(job)
        paths = [*kept, *(savepoint.path for savepoint in savepoints if savepoint.path is not None)]
        for path in paths:
            if (job, path) not in self._files:
                self.remember(job, await read_snapshot(self._storage.child(job), metadata_path(path)))
        return frozenset().union(*(self._files[job, path] for path in paths))


def count_bytes(snapshot: Snapshot) -> int:
    """What the files of a snapshot's tables take, each counted once."""
    files = {
        file.path: file.bytes
        for operator in snapshot.operators
        for subtask in operator.subtasks
        for table in subtask.tables
        for file in table.files
    }
    return sum(files.values())


def _without_files(request: SavepointRequest, state: SavepointState, error: str | None = None) -> SavepointRecord:
    return SavepointRecord(request.id, request.job_id, request.pipeline_id, request.name, state, error=error)


async def _paths(folder: Storage, prefix: str) -> AsyncIterator[str]:
    async for info in folder.list(prefix):
        yield info.path
