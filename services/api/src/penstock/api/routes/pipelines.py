"""/pipelines: queries that users want to run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from http import HTTPStatus

from fastapi import APIRouter

from penstock.api.context import Context, InContext, Limit, StartingAfter, errors
from penstock.api.desired import Change, check_restored
from penstock.api.graph import graph_of
from penstock.api.restoring import restored_state
from penstock.api.schemas import (
    CreatePipeline,
    Page,
    Pipeline,
    PipelineSummary,
    PipelineUdf,
    PreviewPipeline,
    RestartPipeline,
    Severity,
    UpdatePipeline,
    ValidateQuery,
    Validation,
)
from penstock.api.store import NewPipeline, Restart
from penstock.common.ids import JobId, PipelineId, SavepointId
from penstock.common.jobs import RestartMode
from penstock.common.program_proto import program_from_proto
from penstock.common.proto.compiler_pb2 import BuiltUdf
from penstock.common.proto.program_pb2 import Program

router = APIRouter(prefix="/pipelines", tags=["pipelines"])


@router.post("", status_code=HTTPStatus.CREATED, responses=errors(400, 404, 409))
async def create_pipeline(request: CreatePipeline, context: InContext) -> Pipeline:
    """Compile a query, and have it run as a job, from the beginning or from a savepoint whose state fits it."""
    return await _create(request, context)


@router.post("/validate", responses=errors(400, 404, 409))
async def validate_query(request: ValidateQuery, context: InContext) -> Validation:
    """Say what is wrong with a query, or what it would be compiled to, and what it would make of a savepoint.

    Nothing is created.
    """
    validated = await context.compiler.validate(request.query, await _udfs(request.udfs, context))
    state = None
    if request.from_savepoint is not None and validated.program is not None:
        savepoint = await context.checkpoints.ready_savepoint(SavepointId(request.from_savepoint))
        state = await restored_state(context, savepoint, validated.program)
    return Validation(
        valid=not any(one.severity is Severity.ERROR for one in validated.diagnostics),
        diagnostics=list(validated.diagnostics),
        graph=None if validated.program is None else graph_of(validated.program),
        state=state,
    )


@router.post("/preview", status_code=HTTPStatus.CREATED, responses=errors(400))
async def preview_pipeline(request: PreviewPipeline, context: InContext) -> Pipeline:
    """Run a query for a short while, with the rows of every sink going to the job's output instead."""
    create = CreatePipeline(
        name=request.name,
        query=request.query,
        udfs=request.udfs,
        parallelism=request.parallelism,
        checkpoint_interval=None,
        preview=True,
    )
    return await _create(create, context)


@router.get("", responses=errors(400))
async def list_pipelines(
    context: InContext, starting_after: StartingAfter = None, limit: Limit = 20
) -> Page[PipelineSummary]:
    """The newest first."""
    after = PipelineId(starting_after) if starting_after else None
    found = await context.store.pipelines(after=after, limit=limit + 1)
    return Page(data=found[:limit], has_more=len(found) > limit)


@router.get("/{pipeline_id}", responses=errors(400, 404))
async def get_pipeline(pipeline_id: str, context: InContext) -> Pipeline:
    """A pipeline with its graph."""
    summary, program = await context.store.pipeline(PipelineId(pipeline_id))
    graph = graph_of(program_from_proto(Program.FromString(program)))
    return Pipeline(**dict(summary), graph=graph)


@router.patch("/{pipeline_id}", responses=errors(400, 404, 409))
async def update_pipeline(pipeline_id: str, request: UpdatePipeline, context: InContext) -> Pipeline:
    """Stop the pipeline's job or have it run again, or change its parallelism, its checkpoint interval or what it may
    go on from.

    The answer tells what is wanted now; the job follows.
    """
    change = Change(request.stop, request.parallelism, request.checkpoint_interval, request.allow_fallback)
    context.wake_controller(await context.store.change_pipeline(PipelineId(pipeline_id), change))
    return await get_pipeline(pipeline_id, context)


@router.post("/{pipeline_id}/restart", responses=errors(400, 404, 409))
async def restart_pipeline(pipeline_id: str, context: InContext, request: RestartPipeline | None = None) -> Pipeline:
    """Start the pipeline's job anew; one that failed or was stopped runs again."""
    wanted = request or RestartPipeline()
    mode = RestartMode.FORCE if wanted.force else RestartMode.SAFE
    restart = Restart(mode, wanted.ignore_state, wanted.allow_fallback)
    context.wake_controller(await context.store.restart_pipeline(PipelineId(pipeline_id), restart))
    return await get_pipeline(pipeline_id, context)


@router.post("/{pipeline_id}/rebalance", responses=errors(400, 404, 409))
async def rebalance_pipeline(pipeline_id: str, context: InContext) -> Pipeline:
    """Place a job that runs anew over the nodes that there are now: it is saved, and goes on where it was."""
    context.wake_controller(await context.store.rebalance_pipeline(PipelineId(pipeline_id)))
    return await get_pipeline(pipeline_id, context)


@router.delete("/{pipeline_id}", status_code=HTTPStatus.NO_CONTENT, responses=errors(400, 404, 409))
async def delete_pipeline(pipeline_id: str, context: InContext) -> None:
    """Delete a pipeline with its job, which must have ended."""
    await context.store.delete_pipeline(PipelineId(pipeline_id))


async def _udfs(own: Sequence[PipelineUdf], context: Context) -> Sequence[BuiltUdf]:
    """The functions that a query can call: all that there are, and its own, which go before those."""
    built = [await context.compiler.build_udf(udf.source, udf.name) for udf in own]
    return [*await context.udfs.built(), *built]


async def _create(request: CreatePipeline, context: Context) -> Pipeline:
    udfs = await _udfs(request.udfs, context)
    compiled = await context.compiler.compile(request.query, udfs, preview=request.preview)
    from_savepoint = None if request.from_savepoint is None else SavepointId(request.from_savepoint)
    if from_savepoint is not None:
        savepoint = await context.checkpoints.ready_savepoint(from_savepoint)
        check_restored(await restored_state(context, savepoint, compiled.program), savepoint.name)
    wanted, defaults = compiled.program.settings, context.settings
    set_interval = timedelta(milliseconds=wanted.checkpoint_interval_ms)
    summary = await context.store.create_pipeline(
        NewPipeline(
            name=request.name,
            query=request.query,
            program=compiled.encoded,
            parallelism=request.parallelism or wanted.parallelism or defaults.default_parallelism,
            checkpoint_interval=request.checkpoint_interval or set_interval or defaults.default_checkpoint_interval,
            preview=request.preview,
            from_savepoint=from_savepoint,
            allow_fallback=request.allow_fallback,
        )
    )
    context.wake_controller(JobId(summary.job_id))
    return Pipeline(**dict(summary), graph=graph_of(compiled.program), warnings=[*compiled.warnings])
