"""Postgres: writes what users want, and reads what is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg

from penstock.api.desired import Change, check_change, check_delete, check_rebalance, check_restart
from penstock.api.locks import lock_job_of, lock_savepoint
from penstock.api.schemas import Job, JobError, JobEvent, JobSummary, PipelineSummary, Worker
from penstock.api.statements import Statements
from penstock.common.database import Connection
from penstock.common.errors import NotFound
from penstock.common.ids import JobId, PipelineId, SavepointId
from penstock.common.jobs import JobState, RestartMode

_PIPELINES = """
    SELECT p.id, p.name, p.query, p.created_at, c.id AS job_id, c.stop_mode AS stop, c.parallelism,
           c.checkpoint_interval_ms * interval '1 millisecond' AS checkpoint_interval, c.preview,
           c.restore_from AS from_savepoint, c.allow_fallback, coalesce(s.state, 'created') AS state
    FROM pipelines p JOIN job_configs c ON c.pipeline_id = p.id LEFT JOIN job_statuses s ON s.job_id = c.id
"""
_JOBS = """
    SELECT c.id, c.pipeline_id, p.name AS pipeline_name, coalesce(s.state, 'created') AS state, c.stop_mode AS stop,
           coalesce(s.generation, 0) AS generation, coalesce(s.parallelism, 0) AS parallelism,
           coalesce(s.tasks, 0) AS tasks, coalesce(s.restarts, 0) AS restarts, c.preview, c.created_at,
           s.error_message, s.error_hint, s.error_domain, s.started_at, s.finished_at, s.updated_at
    FROM job_configs c JOIN pipelines p ON p.id = c.pipeline_id LEFT JOIN job_statuses s ON s.job_id = c.id
"""
_TERMINAL = [state.value for state in JobState if state.is_terminal]


@dataclass(frozen=True, slots=True)
class NewPipeline:
    """A pipeline that a user wants, compiled."""

    name: str
    query: str
    program: bytes
    parallelism: int
    checkpoint_interval: timedelta
    preview: bool
    from_savepoint: SavepointId | None = None
    allow_fallback: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """How a user wants a job started anew; None leaves what is allowed."""

    mode: RestartMode
    ignore_state: bool = False
    allow_fallback: bool | None = None


class Store(Statements):
    """Pipelines, and their jobs with the workers that they have."""

    async def create_pipeline(self, new: NewPipeline) -> PipelineSummary:
        pipeline, job = PipelineId.new(), JobId.new()
        async with self._transaction() as connection:
            if new.from_savepoint is not None:
                await lock_savepoint(connection, new.from_savepoint)
            await connection.execute(
                "INSERT INTO pipelines (id, name, query, program) VALUES ($1, $2, $3, $4)",
                pipeline,
                new.name,
                new.query,
                new.program,
            )
            await connection.execute(
                """
                INSERT INTO job_configs
                  (id, pipeline_id, parallelism, checkpoint_interval_ms, preview, restore_from, allow_fallback)
                VALUES ($1, $2, $3, $4, $5, $6, $7)
                """,
                job,
                pipeline,
                new.parallelism,
                _milliseconds(new.checkpoint_interval),
                new.preview,
                new.from_savepoint,
                new.allow_fallback,
            )
            return await _pipeline(connection, pipeline)

    async def pipelines(self, *, after: PipelineId | None, limit: int) -> list[PipelineSummary]:
        """The newest first, beginning after one of them."""
        sql = f"{_PIPELINES} WHERE $1::text IS NULL OR p.id < $1 ORDER BY p.id DESC LIMIT $2"
        return [PipelineSummary.model_validate(dict(row)) for row in await self._fetch(sql, after, limit)]

    async def pipeline(self, pipeline: PipelineId) -> tuple[PipelineSummary, bytes]:
        """A pipeline with its program."""
        async with self._transaction() as connection:
            summary = await _pipeline(connection, pipeline)
            return summary, await connection.fetchval("SELECT program FROM pipelines WHERE id = $1", pipeline)

    async def change_pipeline(self, pipeline: PipelineId, change: Change) -> JobId:
        async with self._transaction() as connection:
            job, facts = await lock_job_of(connection, pipeline)
            check_change(facts, change)
            if not change.is_empty:
                interval = change.checkpoint_interval
                await connection.execute(
                    """
                    UPDATE job_configs SET stop_mode = coalesce($2::stop_mode, stop_mode),
                        parallelism = coalesce($3, parallelism),
                        checkpoint_interval_ms = coalesce($4, checkpoint_interval_ms),
                        allow_fallback = coalesce($5, allow_fallback)
                    WHERE id = $1
                    """,
                    job,
                    change.stop,
                    change.parallelism,
                    None if interval is None else _milliseconds(interval),
                    change.allow_fallback,
                )
        return job

    async def restart_pipeline(self, pipeline: PipelineId, restart: Restart) -> JobId:
        """Have the job started anew, with its state or without; one that was stopped runs again."""
        async with self._transaction() as connection:
            job, facts = await lock_job_of(connection, pipeline)
            check_restart(facts)
            await connection.execute(
                """
                UPDATE job_configs SET restart_nonce = restart_nonce + 1, restart_mode = $2, stop_mode = 'none',
                    ignore_state_nonce = CASE WHEN $3 THEN restart_nonce + 1 ELSE ignore_state_nonce END,
                    allow_fallback = coalesce($4, allow_fallback)
                WHERE id = $1
                """,
                job,
                restart.mode,
                restart.ignore_state,
                restart.allow_fallback,
            )
        return job

    async def rebalance_pipeline(self, pipeline: PipelineId) -> JobId:
        """Have a job that runs placed anew."""
        async with self._transaction() as connection:
            job, facts = await lock_job_of(connection, pipeline)
            check_rebalance(facts)
            sql = "UPDATE job_configs SET restart_nonce = restart_nonce + 1, restart_mode = 'safe' WHERE id = $1"
            await connection.execute(sql, job)
        return job

    async def delete_pipeline(self, pipeline: PipelineId) -> None:
        async with self._transaction() as connection:
            _job, facts = await lock_job_of(connection, pipeline)
            check_delete(facts)
            await connection.execute("DELETE FROM pipelines WHERE id = $1", pipeline)

    async def jobs(self, *, after: JobId | None, limit: int) -> list[JobSummary]:
        """The newest first, beginning after one of them."""
        sql = f"{_JOBS} WHERE $1::text IS NULL OR c.id < $1 ORDER BY c.id DESC LIMIT $2"
        return [JobSummary.model_validate(_job_fields(row)) for row in await self._fetch(sql, after, limit)]

    async def job(self, job: JobId) -> Job:
        """A job with the workers that it runs on."""
        rows = await self._fetch(f"{_JOBS} WHERE c.id = $1", job)
        if not rows:
            raise NotFound(f"there is no job {job}")
        workers = [worker for worker in await self.workers(job=job) if worker.generation == rows[0]["generation"]]
        return Job.model_validate({**_job_fields(rows[0]), "workers": workers})

    async def program_of_job(self, job: JobId) -> bytes:
        sql = "SELECT p.program FROM pipelines p JOIN job_configs c ON c.pipeline_id = p.id WHERE c.id = $1"
        rows = await self._fetch(sql, job)
        if not rows:
            raise NotFound(f"there is no job {job}")
        return bytes(rows[0]["program"])

    async def job_events(self, job: JobId, *, kinds: Collection[str], before: int | None, limit: int) -> list[JobEvent]:
        """The newest first."""
        sql = f"""
            {_EVENTS} WHERE job_id = $1 AND kind = ANY($2) AND ($3::bigint IS NULL OR id < $3)
            ORDER BY id DESC LIMIT $4
        """
        rows = await self._fetch(sql, job, list(kinds), before, limit)
        return [JobEvent.model_validate(dict(row)) for row in rows]

    async def job_events_since(self, job: JobId, after: int, limit: int) -> list[JobEvent]:
        """The oldest first."""
        sql = f"{_EVENTS} WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $3"
        return [JobEvent.model_validate(dict(row)) for row in await self._fetch(sql, job, after, limit)]

    async def workers(self, *, job: JobId | None = None) -> list[Worker]:
        """All workers, or those of a job."""
        rows = await self._fetch("SELECT * FROM workers WHERE $1::text IS NULL OR job_id = $1 ORDER BY id", job)
        return [Worker.model_validate(dict(row)) for row in rows]

    async def ping(self) -> None:
        """Raises DatabaseUnavailable when the database cannot be asked."""
        await self._fetch("SELECT 1")

    async def stop_previews(self, lifetime: timedelta) -> list[JobId]:
        """Have the previews stopped that have run long enough."""
        rows = await self._fetch(
            """
            UPDATE job_configs c SET stop_mode = 'immediate'
            WHERE c.preview AND c.stop_mode = 'none' AND c.created_at < now() - $1::interval
              AND NOT EXISTS (SELECT FROM job_statuses s WHERE s.job_id = c.id AND s.state::text = ANY($2))
            RETURNING c.id
            """,
            lifetime,
            _TERMINAL,
        )
        return [JobId(row["id"]) for row in rows]

    async def delete_previews(self, retention: timedelta) -> None:
        """Delete the previews that ended long enough ago."""
        await self._fetch(
            """
            DELETE FROM pipelines p USING job_configs c, job_statuses s
            WHERE c.pipeline_id = p.id AND s.job_id = c.id AND c.preview AND s.state::text = ANY($2)
              AND s.updated_at < now() - $1::interval
            """,
            retention,
            _TERMINAL,
        )


_EVENTS = """
    SELECT id, at, kind, generation, from_state, to_state, node_key AS node, subtask, message, hint, domain
    FROM job_events
"""


async def _pipeline(connection: Connection, pipeline: PipelineId) -> PipelineSummary:
    row = await connection.fetchrow(f"{_PIPELINES} WHERE p.id = $1", pipeline)
    if row is None:
        raise NotFound(f"there is no pipeline {pipeline}")
    return PipelineSummary.model_validate(dict(row))


def _job_fields(row: asyncpg.Record) -> dict[str, Any]:
    fields = dict(row)
    message, hint, domain = (fields.pop(f"error_{part}") for part in ("message", "hint", "domain"))
    error = None if message is None else JobError(message=message, hint=hint, domain=domain)
    return {**fields, "error": error}


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
