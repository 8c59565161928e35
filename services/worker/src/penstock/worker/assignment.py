"""What a worker is asked to run."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.ids import Generation, JobId, PipelineId
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
class Assignment:
    """A worker's share of a job."""

    job: Job
    program: Program
    tasks: tuple[TaskId, ...]
    """Those of this worker."""
