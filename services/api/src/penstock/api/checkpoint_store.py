"""Checkpoints and savepoints in Postgres."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import asyncpg

from penstock.api.desired import check_ready, check_savepoint
from penstock.api.http_errors import Conflict
from penstock.api.locks import lock_job, lock_savepoint
from penstock.api.schemas import Checkpoint, Savepoint
from penstock.api.statements import Statements
from penstock.common.checkpoint.paths import SnapshotPath
from penstock.common.errors import NotFound
from penstock.common.ids import Epoch, JobId, SavepointId

_SAVEPOINTS = """
    SELECT r.id, r.name, r.job_id, coalesce(s.pipeline_id, c.pipeline_id) AS pipeline_id,
           coalesce(s.state::text, 'creating') AS state, s.epoch, coalesce(s.bytes, 0) AS bytes, s.error, r.created_at,
           s.path
    FROM savepoint_requests r LEFT JOIN savepoints s ON s.id = r.id LEFT JOIN job_configs c ON c.id = r.job_id
    WHERE NOT r.deleted
"""


@dataclass(frozen=True, slots=True)
class ReadySavepoint:
    """A savepoint that can be begun with."""

    job_id: JobId
    name: str
    path: SnapshotPath


class CheckpointStore(Statements):
    """What the jobs have saved."""

    async def checkpoints(self, job: JobId, *, before: Epoch | None, limit: int) -> list[Checkpoint]:
        """The newest first, beginning before an epoch."""
        sql = """
            SELECT epoch, generation, state, then_stop, savepoint_id, started_at, finished_at, bytes, error
            FROM checkpoints WHERE job_id = $1 AND ($2::bigint IS NULL OR epoch < $2) ORDER BY epoch DESC LIMIT $3
        """
        return [_checkpoint_of(row) for row in await self._fetch(sql, job, before, limit)]

    async def details(self, job: JobId, epoch: Epoch) -> dict[str, Any] | None:
        """What the controller has noted of each subtask, if anything."""
        rows = await self._fetch("SELECT details FROM checkpoints WHERE job_id = $1 AND epoch = $2", job, epoch)
        if not rows:
            raise NotFound(f"job {job} has no checkpoint {epoch}")
        details = rows[0]["details"]
        return None if details is None else json.loads(details)

    async def create_savepoint(self, job: JobId, name: str | None) -> Savepoint:
        savepoint = SavepointId.new()
        async with self._transaction() as connection:
            check_savepoint(await lock_job(connection, job))
            inserted = await connection.fetchval(
                """
                INSERT INTO savepoint_requests (id, job_id, name) VALUES ($1, $2, $3)
                ON CONFLICT (job_id, name) WHERE NOT deleted DO NOTHING RETURNING id
                """,
                savepoint,
                job,
                name or savepoint,
            )
            if inserted is None:
                hint = "choose another name, or delete that one"
                raise Conflict(f"the job has a savepoint {name!r} already", hint=hint)
        return await self.savepoint(savepoint)

    async def savepoints(self, *, job: JobId | None, after: SavepointId | None, limit: int) -> list[Savepoint]:
        """Those of a job or all, the newest first, beginning after one of them."""
        sql = f"""
            {_SAVEPOINTS} AND ($1::text IS NULL OR r.job_id = $1) AND ($2::text IS NULL OR r.id < $2)
            ORDER BY r.id DESC LIMIT $3
        """
        return [Savepoint.model_validate(dict(row)) for row in await self._fetch(sql, job, after, limit)]

    async def savepoint(self, savepoint: SavepointId) -> Savepoint:
        return Savepoint.model_validate(dict(await self._savepoint(savepoint)))

    async def ready_savepoint(self, savepoint: SavepointId) -> ReadySavepoint:
        """A savepoint to begin with; raises Conflict when it is not there yet, or never will be."""
        row = await self._savepoint(savepoint)
        check_ready(Savepoint.model_validate(dict(row)))
        return ReadySavepoint(JobId(row["job_id"]), row["name"], SnapshotPath(row["path"]))

    async def delete_savepoint(self, job: JobId, savepoint: SavepointId) -> None:
        """Have a savepoint deleted, which no job needs."""
        async with self._transaction() as connection:
            if await lock_savepoint(connection, savepoint) != job:
                raise NotFound(f"job {job} has no savepoint {savepoint}")
            users = await connection.fetch(
                """
                SELECT c.pipeline_id FROM job_configs c
                WHERE c.restore_from = $1 AND c.ignore_state_nonce = 0 AND NOT EXISTS (
                  SELECT FROM checkpoints k WHERE k.job_id = c.id AND k.state IN ('committing', 'ready'))
                ORDER BY c.pipeline_id
                """,
                savepoint,
            )
            if users:
                needed = ", ".join(row["pipeline_id"] for row in users)
                hint = "wait for their first checkpoint, or delete them first"
                raise Conflict(f"the savepoint is still needed by {needed}, which began with it", hint=hint)
            await connection.execute("UPDATE savepoint_requests SET deleted = true WHERE id = $1", savepoint)

    async def _savepoint(self, savepoint: SavepointId) -> asyncpg.Record:
        rows = await self._fetch(f"{_SAVEPOINTS} AND r.id = $1", savepoint)
        if not rows:
            raise NotFound(f"there is no savepoint {savepoint}")
        return rows[0]


def _checkpoint_of(row: asyncpg.Record) -> Checkpoint:
    finished_at = row["finished_at"]
    duration_seconds = None if finished_at is None else (finished_at - row["started_at"]).total_seconds()
    return Checkpoint(**dict(row), duration_seconds=duration_seconds)
