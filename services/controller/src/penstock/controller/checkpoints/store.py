"""Checkpoints and savepoints in Postgres; rows of epochs are written through the journal."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import asyncpg

from penstock.common.checkpoint.paths import SnapshotPath
from penstock.common.database import Pool
from penstock.common.ids import Epoch, Generation, JobId, PipelineId, SavepointId
from penstock.controller.checkpoints.records import (
    CheckpointRecord,
    CheckpointState,
    SavepointRecord,
    SavepointRequest,
    SavepointState,
)
from penstock.controller.lease import LeaderWrites
from penstock.controller.statements import read_queries, statements


@dataclass(frozen=True, slots=True)
class KnownCheckpoints:
    """The epochs of a job that are under way or can be restored, the oldest first."""

    last_epoch: Epoch
    live: tuple[CheckpointRecord, ...]

    @property
    def completed(self) -> tuple[CheckpointRecord, ...]:
        return tuple(record for record in self.live if record.state.is_completed)


class PostgresCheckpoints:
    """Every method raises DatabaseUnavailable while Postgres is away. What it writes is refused once another controller
    leads."""

    def __init__(self, pool: Pool, writes: LeaderWrites) -> None:
        self._pool = pool
        self._writes = writes
        self._queries = read_queries()

    async def known(self, job: JobId) -> KnownCheckpoints:
        with statements():
            rows = await self._pool.fetch(self._queries["live_checkpoints"], job)
            last = await self._pool.fetchval(self._queries["last_epoch"], job)
        return KnownCheckpoints(Epoch(last), tuple(map(_checkpoint_of, rows)))

    async def completed(self, job: JobId) -> tuple[CheckpointRecord, ...]:
        """The checkpoints that a job can go on from."""
        with statements():
            rows = await self._pool.fetch(self._queries["live_checkpoints"], job)
        return KnownCheckpoints(Epoch(0), tuple(map(_checkpoint_of, rows))).completed

    async def expire(self, job: JobId, epochs: Collection[Epoch], kept: int) -> None:
        """Epochs can no longer be restored; of those that are over, the rows of the newest so many are kept."""
        async with self._writes.transaction() as connection:
            await connection.execute(self._queries["expire_checkpoints"], job, list(epochs))
            await connection.execute(self._queries["prune_checkpoints"], job, kept)

    async def forget_state(self, job: JobId) -> None:
        """Nothing that a job had can be restored."""
        async with self._writes.transaction() as connection:
            await connection.execute(self._queries["forget_state"], job)

    async def deleted_jobs(self) -> tuple[JobId, ...]:
        """Jobs that are no more and whose files may still be there."""
        with statements():
            rows = await self._pool.fetch(self._queries["jobs_to_sweep"])
        return tuple(JobId(row["job_id"]) for row in rows)

    async def drop(self, job: JobId) -> None:
        async with self._writes.transaction() as connection:
            await connection.execute(self._queries["drop_checkpoints"], job)
            await connection.execute(self._queries["forget_deleted_job"], job)

    async def find_deleted_jobs(self) -> None:
        """Look for deleted jobs among all checkpoints, once."""
        async with self._writes.transaction() as connection:
            await connection.execute(self._queries["find_deleted_jobs"])

    async def confirm_leader(self) -> None:
        """Return if files may be deleted: no other controller leads."""
        await self._writes.confirm()

    async def open_requests(self) -> tuple[SavepointRequest, ...]:
        """What is to be done about savepoints; what is no longer wanted comes first."""
        with statements():
            rows = await self._pool.fetch(self._queries["open_savepoint_requests"])
        return tuple(map(_request_of, rows))

    async def savepoint(self, savepoint: SavepointId) -> SavepointRecord | None:
        with statements():
            row = await self._pool.fetchrow(self._queries["savepoint"], savepoint)
        return None if row is None else _savepoint_of(row)

    async def ready_savepoints(self, job: JobId) -> tuple[SavepointRecord, ...]:
        with statements():
            rows = await self._pool.fetch(self._queries["ready_savepoints"], job)
        return tuple(map(_savepoint_of, rows))

    async def save_savepoint(self, savepoint: SavepointRecord) -> None:
        async with self._writes.transaction() as connection:
            await connection.execute(
                self._queries["save_savepoint"],
                savepoint.id,
                savepoint.job_id,
                savepoint.pipeline_id,
                savepoint.name,
                savepoint.state,
                savepoint.epoch,
                savepoint.path,
                savepoint.bytes,
                savepoint.error,
            )

    async def checkpoint_for(self, savepoint: SavepointId) -> CheckpointRecord | None:
        """The last checkpoint that was begun for a savepoint."""
        with statements():
            row = await self._pool.fetchrow(self._queries["checkpoint_for_savepoint"], savepoint)
        return None if row is None else _checkpoint_of(row)

    async def savepoint_users(self, savepoint: SavepointId) -> tuple[JobId, ...]:
        """The jobs that have nothing else to start from."""
        with statements():
            rows = await self._pool.fetch(self._queries["savepoint_users"], savepoint)
        return tuple(JobId(row["id"]) for row in rows)


def _checkpoint_of(row: asyncpg.Record) -> CheckpointRecord:
    return CheckpointRecord(
        job_id=JobId(row["job_id"]),
        epoch=Epoch(row["epoch"]),
        generation=Generation(row["generation"]),
        state=CheckpointState(row["state"]),
        then_stop=row["then_stop"],
        started_at=row["started_at"],
        savepoint_id=None if row["savepoint_id"] is None else SavepointId(row["savepoint_id"]),
        finished_at=row["finished_at"],
        bytes=row["bytes"],
        error=row["error"],
    )


def _savepoint_of(row: asyncpg.Record) -> SavepointRecord:
    return SavepointRecord(
        id=SavepointId(row["id"]),
        job_id=JobId(row["job_id"]),
        pipeline_id=None if row["pipeline_id"] is None else PipelineId(row["pipeline_id"]),
        name=row["name"],
        state=SavepointState(row["state"]),
        epoch=None if row["epoch"] is None else Epoch(row["epoch"]),
        path=None if row["path"] is None else SnapshotPath(row["path"]),
        bytes=row["bytes"],
        error=row["error"],
    )


def _request_of(row: asyncpg.Record) -> SavepointRequest:
    job, name, pipeline = JobId(row["job_id"]), row["name"], row["pipeline_id"]
    made = None
    if row["state"] is not None:
        made = _savepoint_of({**row, "pipeline_id": row["made_pipeline_id"]})  # type: ignore[arg-type]
    return SavepointRequest(
        id=SavepointId(row["id"]),
        job_id=job,
        name=name,
        deleted=row["deleted"],
        pipeline_id=None if pipeline is None else PipelineId(pipeline),
        preview=row["preview"],
        made=made,
    )
