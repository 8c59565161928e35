"""/jobs/{id}/savepoints and /savepoints: state that is kept until it is deleted, even when its job is gone."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from penstock.api.context import Context, InContext, Limit, StartingAfter, errors
from penstock.api.schemas import CreateSavepoint, Page, Savepoint
from penstock.common.errors import NotFound
from penstock.common.ids import JobId, SavepointId

router = APIRouter(tags=["savepoints"])


@router.post("/jobs/{job_id}/savepoints", status_code=HTTPStatus.CREATED, responses=errors(400, 404, 409))
async def create_savepoint(job_id: str, context: InContext, request: CreateSavepoint | None = None) -> Savepoint:
    """Have a job make a savepoint, which is creating until its next checkpoint is complete.

    That of a job which was stopped, or failed, is made of its last checkpoint.
    """
    job = JobId(job_id)
    savepoint = await context.checkpoints.create_savepoint(job, None if request is None else request.name)
    context.wake_controller(job)
    return savepoint


@router.get("/jobs/{job_id}/savepoints", responses=errors(400, 404))
async def list_job_savepoints(
    job_id: str, context: InContext, starting_after: StartingAfter = None, limit: Limit = 20
) -> Page[Savepoint]:
    """The newest first; a job that is gone may have some."""
    job = JobId(job_id)
    page = await _page(context, job, starting_after, limit)
    if not page.data:
        await context.store.job(job)
    return page


@router.get("/jobs/{job_id}/savepoints/{savepoint_id}", responses=errors(400, 404))
async def get_job_savepoint(job_id: str, savepoint_id: str, context: InContext) -> Savepoint:
    """A savepoint of a job."""
    job = JobId(job_id)
    savepoint = await context.checkpoints.savepoint(SavepointId(savepoint_id))
    if savepoint.job_id != job:
        raise NotFound(f"job {job} has no savepoint {savepoint_id}")
    return savepoint


@router.delete(
    "/jobs/{job_id}/savepoints/{savepoint_id}",
    status_code=HTTPStatus.NO_CONTENT,
    responses=errors(400, 404, 409),
)
async def delete_savepoint(job_id: str, savepoint_id: str, context: InContext) -> None:
    """Delete a savepoint that no pipeline needs; its files go soon after."""
    job = JobId(job_id)
    await context.checkpoints.delete_savepoint(job, SavepointId(savepoint_id))
    context.wake_controller(job)


@router.get("/savepoints", responses=errors(400))
async def list_savepoints(
    context: InContext, starting_after: StartingAfter = None, limit: Limit = 20
) -> Page[Savepoint]:
    """Those of all jobs, the newest first."""
    return await _page(context, None, starting_after, limit)


@router.get("/savepoints/{savepoint_id}", responses=errors(400, 404))
async def get_savepoint(savepoint_id: str, context: InContext) -> Savepoint:
    """A savepoint, whatever job it is of."""
    return await context.checkpoints.savepoint(SavepointId(savepoint_id))


async def _page(context: Context, job: JobId | None, starting_after: str | None, limit: int) -> Page[Savepoint]:
    after = SavepointId(starting_after) if starting_after else None
    found = await context.checkpoints.savepoints(job=job, after=after, limit=limit + 1)
    return Page(data=found[:limit], has_more=len(found) > limit)
