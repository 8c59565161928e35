"""Rows that nobody else can change until the transaction ends, so that what was decided by them still holds."""

from __future__ import annotations

import asyncpg

from penstock.api.desired import JobFacts
from penstock.common.database import Connection
from penstock.common.errors import NotFound
from penstock.common.ids import JobId, PipelineId, SavepointId
from penstock.common.jobs import JobState, StopMode

_FACTS = """
    SELECT c.id, c.stop_mode, coalesce(s.state, 'created') AS state,
           c.restart_nonce <> coalesce(s.restart_nonce, 0) AS restart_pending, c.preview,
           EXISTS (SELECT FROM checkpoints k WHERE k.job_id = c.id AND k.state IN ('committing', 'ready'))
             AS has_checkpoint
    FROM job_configs c LEFT JOIN job_statuses s ON s.job_id = c.id
"""


async def lock_job_of(connection: Connection, pipeline: PipelineId) -> tuple[JobId, JobFacts]:
    """The job of a pipeline."""
    row = await connection.fetchrow(f"{_FACTS} WHERE c.pipeline_id = $1 FOR UPDATE OF c", pipeline)
    if row is None:
        raise NotFound(f"there is no pipeline {pipeline}")
    return JobId(row["id"]), _facts_of(row)


async def lock_job(connection: Connection, job: JobId) -> JobFacts:
    row = await connection.fetchrow(f"{_FACTS} WHERE c.id = $1 FOR UPDATE OF c", job)
    if row is None:
        raise NotFound(f"there is no job {job}")
    return _facts_of(row)


async def lock_savepoint(connection: Connection, savepoint: SavepointId) -> JobId:
    """The job of a savepoint that is wanted: while it is locked, it is neither given up nor started from."""
    sql = "SELECT job_id FROM savepoint_requests WHERE id = $1 AND NOT deleted FOR UPDATE"
    job = await connection.fetchval(sql, savepoint)
    if job is None:
        raise NotFound(f"there is no savepoint {savepoint}")
    return JobId(job)


def _facts_of(row: asyncpg.Record) -> JobFacts:
    return JobFacts(
        JobState(row["state"]),
        StopMode(row["stop_mode"]),
        row["restart_pending"],
        row["preview"],
        row["has_checkpoint"],
    )
