"""What the controller knows of a job as frozen data: what is wanted, what is, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from penstock.common.errors import ErrorDomain, PenstockError, RetryHint
from penstock.common.ids import Generation, JobId, PipelineId, SavepointId
from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.common.program import NodeKey, Program
from penstock.controller.checkpoints.records import CheckpointRecord


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """One subtask of one node of a program."""

    node: NodeKey
    subtask: int

    def __str__(self) -> str:
        return f"{self.node}/{self.subtask}"


def tasks_of(program: Program) -> Iterator[TaskId]:
    """Every task of a program whose parallelism is set."""
    for node in program.nodes:
        for subtask in range(node.parallelism):
            yield TaskId(node.key, subtask)


@dataclass(frozen=True, slots=True)
class TaskOwner:
    """A job at one of its generations: what a worker's reports are about."""

    job_id: JobId
    generation: Generation

    def __str__(self) -> str:
        return f"{self.job_id}/{self.generation}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job cannot go on as it is."""

    message: str
    hint: str | None
    domain: ErrorDomain
    retry: RetryHint
    task: TaskId | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether another attempt would end the same."""
        return self.retry is RetryHint.NEVER or self.domain is ErrorDomain.USER

    @classmethod
    def of(cls, error: PenstockError) -> Failure:
        return cls(error.message, error.hint, error.domain, error.retry)

    @classmethod
    def lost(cls, message: str) -> Failure:
        """A worker or node is gone, which is nobody's mistake and which another attempt may get past."""
        return cls(message, None, ErrorDomain.EXTERNAL, RetryHint.BACKOFF)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """What the user wants of a job; the api writes it."""

    id: JobId
    pipeline_id: PipelineId
    parallelism: int
    stop_mode: StopMode
    restart_nonce: int
    restart_mode: RestartMode
    preview: bool
    revision: int
    checkpoint_interval_ms: int
    restore_from: SavepointId | None
    """The savepoint that the job begins with."""
    ignore_state_nonce: int
    """A restart that begins without state."""
    allow_fallback: bool
    """Whether an older checkpoint will do when the newest cannot be read."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What a job is; the controller writes it."""

    job_id: JobId
    state: JobState = JobState.CREATED
    generation: Generation = field(default=Generation(0))
    parallelism: int = 0
    tasks: int = 0
    restarts: int = 0
    restart_nonce: int = 0
    ignore_state_nonce: int = 0
    failure: Failure | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def owner(self) -> TaskOwner:
        return TaskOwner(self.job_id, self.generation)


class EventKind(StrEnum):
    """What a row of job_events tells."""

    STATE = "state"
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job, for its user."""

    job_id: JobId
    at: datetime
    kind: EventKind
    generation: Generation
    from_state: JobState | None = None
    to_state: JobState | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written of a job at once: its status if that changed, what happened, and a checkpoint that changed."""

    job_id: JobId
    status: JobStatus | None
    events: tuple[JobEvent, ...]
    checkpoint: CheckpointRecord | None = None

    @property
    def is_warning(self) -> bool:
        """Whether nothing depends on it."""
        return self.status is None and self.checkpoint is None
