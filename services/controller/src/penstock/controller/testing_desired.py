"""For tests: what the api would write, and what the controller wrote."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg

from penstock.common.database import Pool
from penstock.common.ids import JobId, NodeId, PipelineId, SavepointId
from penstock.common.jobs import JobState
from penstock.common.program import Program
from penstock.common.program_proto import program_to_proto
from penstock.common.testing import eventually
from penstock.controller.testing import pipeline_program

_REACHES_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Desired:
    """Writes what the api would, and reads what the controller wrote."""

    pool: Pool
    pipelines: dict[JobId, PipelineId] = field(default_factory=dict)

    async def create(
        self, program: Program | None = None, *, parallelism: int = 1, interval_ms: int = 1, **columns: object
    ) -> JobId:
        pipeline, job = PipelineId.new(), JobId.new()
        content = program_to_proto(program or pipeline_program()).SerializeToString()
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "INSERT INTO pipelines (id, name, query, program) VALUES ($1, 'test', 'SELECT 1', $2)",
                pipeline,
                content,
            )
            await connection.execute(
                "INSERT INTO job_configs (id, pipeline_id, parallelism, checkpoint_interval_ms"
                f"{''.join(f', {name}' for name in columns)}) VALUES ($1, $2, $3, $4"
                f"{''.join(f', ${number}' for number in range(5, 5 + len(columns)))})",
                job,
                pipeline,
                parallelism,
                interval_ms,
                *columns.values(),
            )
        self.pipelines[job] = pipeline
        return job

    async def update(self, job: JobId, **columns: object) -> None:
        names = ", ".join(f"{name} = ${index}" for index, name in enumerate(columns, start=2))
        await self.pool.execute(f"UPDATE job_configs SET {names} WHERE id = $1", job, *columns.values())

    async def checkpoints(self, job: JobId) -> list[Mapping[str, Any]]:
        query = "SELECT * FROM checkpoints WHERE job_id = $1 ORDER BY epoch"
        return [dict(row) for row in await self.pool.fetch(query, job)]

    async def want_savepoint(self, job: JobId, name: str) -> SavepointId:
        savepoint = SavepointId.new()
        query = "INSERT INTO savepoint_requests (id, job_id, name) VALUES ($1, $2, $3)"
        await self.pool.execute(query, savepoint, job, name)
        return savepoint

    async def unwant_savepoint(self, savepoint: SavepointId) -> None:
        await self.pool.execute("UPDATE savepoint_requests SET deleted = true WHERE id = $1", savepoint)

    async def drain(self, node: NodeId) -> None:
        await self.pool.execute("INSERT INTO node_drains (node_id) VALUES ($1)", node)

    async def undrain(self, node: NodeId) -> None:
        await self.pool.execute("DELETE FROM node_drains WHERE node_id = $1", node)

    async def savepoint(self, savepoint: SavepointId) -> Mapping[str, Any]:
        row = await self.pool.fetchrow("SELECT * FROM savepoints WHERE id = $1", savepoint)
        return {} if row is None else dict(row)

    async def delete(self, job: JobId) -> None:
        await self.pool.execute("DELETE FROM pipelines WHERE id = $1", self.pipelines[job])

    async def status(self, job: JobId) -> Mapping[str, Any]:
        row = await self.pool.fetchrow("SELECT * FROM job_statuses WHERE job_id = $1", job)
        return {} if row is None else dict(row)

    async def is_in(self, job: JobId, state: JobState) -> bool:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return (await self.status(job)).get("state") == state
        return False

    async def reaches(self, job: JobId, state: JobState, generation: int | None = None) -> None:
        """Waits until a job is in a state."""

        async def is_there() -> bool:
            status = await self.status(job)
            return status.get("state") == state and generation in {None, status["generation"]}

        try:
            await eventually(is_there, _REACHES_SECONDS)
        except TimeoutError:
            found = (await self.status(job), await self.path(job), await self.checkpoints(job))
            raise AssertionError(f"not {state}: {found}") from None

    async def saves(self, job: JobId, more: int = 2) -> None:
        """Waits for some more checkpoints to become ready, whatever becomes of them later."""

        async def completed() -> int:
            return sum(row["state"] in {"ready", "deleted"} for row in await self.checkpoints(job))

        before = await completed()

        async def has_more() -> bool:
            return await completed() >= before + more

        await eventually(has_more, _REACHES_SECONDS)

    async def savepoint_reaches(self, savepoint: SavepointId, state: str) -> Mapping[str, Any]:
        """Waits until a savepoint is in a state."""

        async def is_there() -> bool:
            return (await self.savepoint(savepoint)).get("state") == state

        try:
            await eventually(is_there, _REACHES_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not {state}: {await self.savepoint(savepoint)}") from None
        return await self.savepoint(savepoint)

    async def events(self, job: JobId, kind: str = "state") -> list[Mapping[str, Any]]:
        query = "SELECT * FROM job_events WHERE job_id = $1 AND kind = $2 ORDER BY id"
        return [dict(row) for row in await self.pool.fetch(query, job, kind)]

    async def path(self, job: JobId) -> list[str]:
        """The states that a job has been in."""
        return [event["to_state"] for event in await self.events(job)]
