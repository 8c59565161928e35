"""/jobs/{id}/checkpoints: what jobs have saved of their state, and how long it took."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from penstock.api.context import InContext, Limit, errors
from penstock.api.schemas import Checkpoint, Collection, OperatorCheckpoint, Page
from penstock.api.spans import operator_checkpoints
from penstock.common.ids import Epoch, JobId
from penstock.common.program_proto import program_from_proto
from penstock.common.proto.program_pb2 import Program

router = APIRouter(prefix="/jobs/{job_id}/checkpoints", tags=["checkpoints"])

_LARGEST = 2**63 - 1

BeforeEpoch = Annotated[int | None, Query(ge=0, le=_LARGEST, description="go on after the checkpoint of this epoch")]
InEpoch = Annotated[int, Path(ge=0, le=_LARGEST)]


@router.get("", responses=errors(400, 404))
async def list_job_checkpoints(
    job_id: str, context: InContext, starting_after: BeforeEpoch = None, limit: Limit = 20
) -> Page[Checkpoint]:
    """The newest first; those that are long over are left out."""
    job = JobId(job_id)
    await context.store.job(job)
    before = None if starting_after is None else Epoch(starting_after)
    found = await context.checkpoints.checkpoints(job, before=before, limit=limit + 1)
    return Page(data=found[:limit], has_more=len(found) > limit)


@router.get("/{epoch}/operators", responses=errors(400, 404))
async def list_checkpoint_operators(job_id: str, epoch: InEpoch, context: InContext) -> Collection[OperatorCheckpoint]:
    """What each operator has written, and how long each of its subtasks took, in the order of the program."""
    job = JobId(job_id)
    program = program_from_proto(Program.FromString(await context.store.program_of_job(job)))
    details = await context.checkpoints.details(job, Epoch(epoch))
    return Collection(data=operator_checkpoints(program, details))
