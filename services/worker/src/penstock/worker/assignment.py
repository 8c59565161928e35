"""What a worker is asked to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.common.ids import Generation, JobId, PipelineId, WorkerId
from penstock.common.program import Program
from penstock.common.proto.controller_pb2 import TaskOwner
from penstock.worker.wiring import TaskId


@dataclass(frozen=True, slots=True)
class Job:
    """The job that a worker runs; reports of an old generation are refused."""

    id: JobId
    pipeline: PipelineId
    generation: Generation

    def to_proto(self) -> TaskOwner:
        return TaskOwner(job_id=self.id, generation=self.generation)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where a job's checkpoints are, and which of them it goes on from."""

    url: str
    """The job's folder."""
    restore: str = ""
    """The path of the metadata to go on from; empty: from the beginning."""
    restore_url: str = ""
    """The folder that it is in, where that is another job's."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another worker of a job."""

    worker: WorkerId
    address: str
    """Where it takes rows."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A worker's share of a job."""

    job: Job
    program: Program
    tasks: tuple[TaskId, ...]
    """Those of this worker."""
    checkpoints: Checkpoints | None = None
    """None: the job has none."""
    elsewhere: Mapping[TaskId, Peer] = field(default_factory=dict)
    """Who has the other tasks."""
