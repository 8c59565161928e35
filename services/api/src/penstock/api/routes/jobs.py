"""/jobs: what became of the pipelines that users want to run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from starlette.responses import JSONResponse

from penstock.api.context import Context, InContext, Limit, StartingAfter, errors
from penstock.api.http_errors import http_error
from penstock.api.metrics import job_metrics
from penstock.api.schemas import Job, JobEvent, JobMetrics, JobSummary, Page
from penstock.api.sse import MEDIA_TYPE, EventStream, encode_event
from penstock.common import subjects
from penstock.common.errors import PenstockError
from penstock.common.ids import JobId
from penstock.common.program_proto import program_from_proto
from penstock.common.proto.controller_pb2 import OutputData
from penstock.common.proto.program_pb2 import Program

router = APIRouter(prefix="/jobs", tags=["jobs"])

_PROBLEMS = ("error", "warning")
_ALL_KINDS = ("state", *_PROBLEMS)
_EVENTS_AT_ONCE = 100
# How often events are looked for when no message about the job comes.
_LOOK_SECONDS = 1.0

BeforeEvent = Annotated[int | None, Query(ge=0, description="go on after the event of this id")]


@router.get("", responses=errors(400))
async def list_jobs(context: InContext, starting_after: StartingAfter = None, limit: Limit = 20) -> Page[JobSummary]:
    """The newest first."""
    after = JobId(starting_after) if starting_after else None
    found = await context.store.jobs(after=after, limit=limit + 1)
    return Page(data=found[:limit], has_more=len(found) > limit)


@router.get("/{job_id}", responses=errors(400, 404))
async def get_job(job_id: str, context: InContext) -> Job:
    """A job with the workers that run its subtasks."""
    return await context.store.job(JobId(job_id))


@router.get("/{job_id}/errors", responses=errors(400, 404))
async def list_job_errors(
    job_id: str, context: InContext, starting_after: BeforeEvent = None, limit: Limit = 20
) -> Page[JobEvent]:
    """What went wrong, the newest first: errors that failed the job or that it recovered from, and warnings."""
    return await _events(context, JobId(job_id), _PROBLEMS, starting_after, limit)


@router.get(
    "/{job_id}/events",
    responses={**errors(400, 404), 200: {"content": {MEDIA_TYPE: {}}}},
    response_model=Page[JobEvent],
)
async def list_job_events(
    job_id: str,
    context: InContext,
    starting_after: BeforeEvent = None,
    limit: Limit = 20,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[int, Header(ge=0)] = 0,
) -> Page[JobEvent] | Response:
    """What happened, the newest first; or, when `text/event-stream` is accepted, from the first on as it happens."""
    job = JobId(job_id)
    if MEDIA_TYPE not in accept:
        return await _events(context, job, _ALL_KINDS, starting_after, limit)
    await context.store.job(job)
    events = _follow_events(context, job, last_event_id)
    return EventStream(events, keep_alive=context.settings.keep_alive, stopping=context.stopping)


@router.get("/{job_id}/metrics", responses=errors(400, 404))
async def get_job_metrics(job_id: str, context: InContext) -> JobMetrics:
    """The figures of each node of the job's program, and of each of its subtasks."""
    job = JobId(job_id)
    program = program_from_proto(Program.FromString(await context.store.program_of_job(job)))
    return job_metrics(job, program, await context.controller.metrics(job))


@router.get(
    "/{job_id}/output",
    response_class=Response,
    responses={
        **errors(400, 404),
        200: {
            "description": "events whose data is `{table, subtask, rows}`; `event: end` is the last",
            "content": {MEDIA_TYPE: {"example": 'data: {"table":"preview","subtask":0,"rows":[{"counter":0}]}\n\n'}},
        },
    },
)
async def stream_job_output(job_id: str, context: InContext) -> Response:
    """The rows of the job's previews as they come, as server-sent events; those first that nobody has seen yet."""
    job = JobId(job_id)
    await context.store.job(job)
    events = _follow_output(context, job)
    return EventStream(events, keep_alive=context.settings.keep_alive, stopping=context.stopping)


async def _events(
    context: Context, job: JobId, kinds: tuple[str, ...], before: int | None, limit: int
) -> Page[JobEvent]:
    await context.store.job(job)
    found = await context.store.job_events(job, kinds=kinds, before=before, limit=limit + 1)
    return Page(data=found[:limit], has_more=len(found) > limit)


async def _follow_output(context: Context, job: JobId) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(context.controller.output(job)) as batches:
            async for batch in batches:
                yield encode_event(_rows(batch))
        yield encode_event(b"{}", name="end")
    except PenstockError as error:
        yield _encode_error(http_error(error))


def _rows(batch: OutputData) -> bytes:
    table = json.dumps(batch.table).encode()
    rows = b",".join(line for line in batch.lines.split(b"\n") if line)
    return b'{"table":%b,"subtask":%d,"rows":[%b]}' % (table, batch.subtask, rows)


def _encode_error(response: JSONResponse) -> bytes:
    return encode_event(bytes(response.body), name="error")


async def _follow_events(context: Context, job: JobId, after: int) -> AsyncGenerator[bytes, None]:
    """The events of the table; a message about the job only tells that it is worth looking."""
    news = asyncio.Event()

    async def listen() -> None:
        async with context.bus.subscribe(subjects.all_of_job(job)) as messages:
            async for _ in messages:
                news.set()

    listening = asyncio.create_task(listen(), name="job-events")
    try:
        while True:
            news.clear()
            found = await context.store.job_events_since(job, after, _EVENTS_AT_ONCE)
            for event in found:
                after = event.id
                yield encode_event(event.model_dump_json().encode(), name=event.kind, event_id=event.id)
            if len(found) < _EVENTS_AT_ONCE:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await news.wait()
    except PenstockError as error:
        yield _encode_error(http_error(error))
    finally:
        listening.cancel()
        await asyncio.wait((listening,))
