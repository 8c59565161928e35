"""Postgres as the controller sees it: jobs as they are wanted and are, and what it knows of nodes and workers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg
from google.protobuf.message import DecodeError

from penstock.common.database import Pool
from penstock.common.errors import ErrorDomain, InternalError, NotFound, RetryHint
from penstock.common.ids import Generation, JobId, NodeId, PipelineId, SavepointId, WorkerId
from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.common.program import Program
from penstock.common.program_proto import program_from_proto
from penstock.common.proto import program_pb2
from penstock.controller.checkpoints.records import CheckpointRecord
from penstock.controller.lease import LeaderWrites
from penstock.controller.records import Entry, Failure, JobConfig, JobEvent, JobStatus, TaskOwner
from penstock.controller.statements import read_queries, statements


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as it is wanted, and as it was last known to be."""

    config: JobConfig
    status: JobStatus | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    id: NodeId
    rpc_address: str
    slots: int
    slots_used: int
    draining: bool
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerRow:
    id: WorkerId
    node_id: NodeId | None
    rpc_address: str
    owner: TaskOwner | None
    tasks: int
    seen_at: datetime


class PostgresStore:
    """The store; every method raises DatabaseUnavailable while Postgres is away. What it writes is refused once another
    controller leads."""

    def __init__(self, pool: Pool, writes: LeaderWrites) -> None:
        self._pool = pool
        self._writes = writes
        self._queries = read_queries()

    async def unsettled_jobs(self) -> tuple[int, tuple[StoredJob, ...]]:
        """The jobs that something is to be done for, and the revision up to which changes are known."""
        with statements():
            # In this order: what changes in between is seen twice, not missed.
            revision: int = await self._pool.fetchval(self._queries["newest_revision"])
            rows = await self._pool.fetch(self._queries["unsettled_jobs"])
        return revision, tuple(_job_of(row) for row in rows)

    async def changed_jobs(self, since: int) -> tuple[StoredJob, ...]:
        """The jobs whose config has a revision above one, in the order of their revisions."""
        with statements():
            rows = await self._pool.fetch(self._queries["changed_jobs"], since)
        return tuple(_job_of(row) for row in rows)

    async def deleted_jobs(self, jobs: Collection[JobId]) -> tuple[JobId, ...]:
        """Those of some jobs that are no more."""
        with statements():
            rows = await self._pool.fetch(self._queries["deleted_jobs"], list(jobs))
        return tuple(JobId(row["id"]) for row in rows)

    async def job_state(self, job: JobId) -> JobState | None:
        """Where a job is, or None if there is no such job."""
        with statements():
            state = await self._pool.fetchval(self._queries["job_state"], job)
        return None if state is None else JobState(state)

    async def load_program(self, pipeline: PipelineId) -> Program:
        """The program that the api stored."""
        with statements():
            content = await self._pool.fetchval(self._queries["program"], pipeline)
        if content is None:
            raise NotFound(f"there is no pipeline {pipeline}")
        try:
            return program_from_proto(program_pb2.Program.FromString(content))
        except (DecodeError, ValueError) as error:
            raise InternalError(f"the program of pipeline {pipeline} cannot be read: {error}") from error

    async def record(self, entries: Sequence[Entry]) -> None:
        """Write entries in their order, all or none."""
        async with self._writes.transaction() as connection:
            statuses = [_status_row(entry.status) for entry in entries if entry.status is not None]
            events = [_event_row(event) for entry in entries for event in entry.events]
            checkpoints = [_checkpoint_row(entry.checkpoint) for entry in entries if entry.checkpoint is not None]
            for query, rows in (("save_status", statuses), ("add_event", events), ("save_checkpoint", checkpoints)):
                if rows:
                    await connection.executemany(self._queries[query], rows)

    async def node_drains(self) -> frozenset[NodeId]:
        """The nodes that are to be drained."""
        with statements():
            rows = await self._pool.fetch(self._queries["node_drains"])
        return frozenset(NodeId(row["node_id"]) for row in rows)

    async def mirror(self, nodes: Sequence[NodeRow], workers: Sequence[WorkerRow]) -> None:
        """Make the tables of nodes and workers say what the registry says."""
        async with self._writes.transaction() as connection:
            await connection.execute(self._queries["drop_other_nodes"], [node.id for node in nodes])
            await connection.execute(self._queries["drop_other_workers"], [worker.id for worker in workers])
            await connection.executemany(
                self._queries["save_node"],
                [(n.id, n.rpc_address, n.slots, n.slots_used, n.draining, n.seen_at) for n in nodes],
            )
            columns = zip(*map(_worker_row, workers), strict=True)
            if workers:
                await connection.execute(self._queries["save_workers"], *map(list, columns))


def _job_of(row: asyncpg.Record) -> StoredJob:
    config = JobConfig(
        id=JobId(row["id"]),
        pipeline_id=PipelineId(row["pipeline_id"]),
        parallelism=row["parallelism"],
        stop_mode=StopMode(row["stop_mode"]),
        restart_nonce=row["restart_nonce"],
        restart_mode=RestartMode(row["restart_mode"]),
        preview=row["preview"],
        revision=row["revision"],
        checkpoint_interval_ms=row["checkpoint_interval_ms"],
        restore_from=None if row["restore_from"] is None else SavepointId(row["restore_from"]),
        ignore_state_nonce=row["ignore_state_nonce"],
        allow_fallback=row["allow_fallback"],
    )
    return StoredJob(config, None if row["job_id"] is None else _status_of(row))


def _status_of(row: asyncpg.Record) -> JobStatus:
    return JobStatus(
        job_id=JobId(row["job_id"]),
        state=JobState(row["state"]),
        generation=Generation(row["generation"]),
        parallelism=row["status_parallelism"],
        tasks=row["tasks"],
        restarts=row["restarts"],
        restart_nonce=row["status_restart_nonce"],
        ignore_state_nonce=row["status_ignore_state_nonce"],
        failure=_failure_of(row),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )


def _failure_of(row: asyncpg.Record) -> Failure | None:
    if row["error_message"] is None:
        return None
    # What it led to is in the state already.
    return Failure(row["error_message"], row["error_hint"], ErrorDomain(row["error_domain"]), RetryHint.NEVER)


def _status_row(status: JobStatus) -> tuple[object, ...]:
    failure = status.failure
    return (
        status.job_id,
        status.state,
        status.generation,
        status.parallelism,
        status.tasks,
        status.restarts,
        status.restart_nonce,
        status.ignore_state_nonce,
        *((failure.message, failure.hint, failure.domain) if failure else (None, None, None)),
        status.started_at,
        status.finished_at,
    )


def _event_row(event: JobEvent) -> tuple[object, ...]:
    failure = event.failure
    task = failure.task if failure else None
    return (
        event.job_id,
        event.at,
        event.kind,
        event.generation,
        event.from_state,
        event.to_state,
        *((task.node, task.subtask) if task else (None, None)),
        *((failure.message, failure.hint, failure.domain) if failure else (None, None, None)),
    )


def _checkpoint_row(checkpoint: CheckpointRecord) -> tuple[object, ...]:
    return (
        checkpoint.job_id,
        checkpoint.epoch,
        checkpoint.generation,
        checkpoint.state,
        checkpoint.then_stop,
        checkpoint.started_at,
        checkpoint.savepoint_id,
        checkpoint.finished_at,
        checkpoint.bytes,
        checkpoint.error,
        None if checkpoint.details is None else json.dumps(checkpoint.details),
    )


def _worker_row(worker: WorkerRow) -> tuple[object, ...]:
    owner = (worker.owner.job_id, worker.owner.generation) if worker.owner else (None, None)
    return (worker.id, worker.node_id, worker.rpc_address, *owner, worker.tasks, worker.seen_at)
