"""`penstock pipelines` and `penstock jobs`: what can be asked of an api elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli import terminal
from penstock.cli.context import context_of, run_async
from penstock.cli.queries import read_query
from penstock.common.jobs import StopMode

if TYPE_CHECKING:
    from pydantic import BaseModel

    from penstock.api.schemas import Job, JobSummary, PipelineSummary
    from penstock.cli.client import Client

Result = TypeVar("Result")


class StopChoice(StrEnum):
    """The ways to stop a job."""

    CHECKPOINT = StopMode.CHECKPOINT
    GRACEFUL = StopMode.GRACEFUL
    IMMEDIATE = StopMode.IMMEDIATE
    FORCE = StopMode.FORCE


ApiOption = Annotated[
    str, typer.Option("--api", envvar="PENSTOCK_API", metavar="URL", help="The api; else cli.api of the settings.")
]
TokenOption = Annotated[
    str, typer.Option("--token", envvar="PENSTOCK_TOKEN", help="The api's token.", show_envvar=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, as the api answers.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="The most to list, newest first.")]
ParallelismOption = Annotated[
    int | None, typer.Option("--parallelism", "-p", min=1, max=1024, metavar="N", help="Subtasks of each node.")
]
PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's id, pl_….")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, job_….")]

pipelines = typer.Typer(help="Create, list, stop and delete pipelines of a running Penstock.", no_args_is_help=True)
jobs = typer.Typer(help="Look at the jobs of a running Penstock.", no_args_is_help=True)


@pipelines.command("list")
def list_pipelines(
    context: typer.Context,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List pipelines, the newest first."""
    page = _ask(context, api, token, lambda client: client.pipelines(limit))
    if as_json:
        return _print_json(page)
    _print_pipelines(page.data)


@pipelines.command("create")
def create_pipeline(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of SQL, or - for standard input.")],
    name: Annotated[str, typer.Option("--name", "-n", help="Its name; else the file's.")] = "",
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", "-p", min=1, help="Subtasks of each node.")
    ] = None,
    interval: Annotated[str | None, typer.Option("--checkpoint-interval", metavar="TIME", help="Such as 10s.")] = None,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Create a pipeline of a query, which begins to run."""
    from penstock.api.schemas import CreatePipeline
    from penstock.cli.client import RequestRefused
    from penstock.common.quantities import parse_duration

    query = read_query(file)
    try:
        duration = None if interval is None else parse_duration(interval)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--checkpoint-interval") from error
    request = CreatePipeline(
        name=name or query.name, query=query.sql, parallelism=parallelism, checkpoint_interval=duration
    )
    try:
        created = _ask(context, api, token, lambda client: client.create_pipeline(request))
    except RequestRefused as refusal:
        if not refusal.diagnostics:
            raise
        terminal.show_diagnostics(refusal.diagnostics, query)
        raise typer.Exit(terminal.FAILED) from refusal
    if as_json:
        return _print_json(created)
    _print_pipelines([created])


@pipelines.command("show")
def show_pipeline(
    context: typer.Context,
    pipeline: PipelineArgument,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Show a pipeline with its query and its graph."""
    found = _ask(context, api, token, lambda client: client.pipeline(pipeline))
    if as_json:
        return _print_json(found)
    _print_fields(found, ("id", "name", "job_id", "state", "stop", "parallelism", "checkpoint_interval", "created_at"))
    terminal.show_table(("node", "operators"), [(node.id, node.description) for node in found.graph.nodes])
    print(found.query)


@pipelines.command("stop")
def stop_pipeline(
    context: typer.Context,
    pipeline: PipelineArgument,
    mode: Annotated[StopChoice, typer.Option("--mode", "-m", help="How.")] = StopChoice.GRACEFUL,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Stop a pipeline's job."""
    from penstock.api.schemas import UpdatePipeline

    update = UpdatePipeline(stop=StopMode(mode))
    found = _ask(context, api, token, lambda client: client.update_pipeline(pipeline, update))
    return _print_json(found) if as_json else _print_pipelines([found])


@pipelines.command("restart")
def restart_pipeline(
    context: typer.Context,
    pipeline: PipelineArgument,
    force: Annotated[bool, typer.Option("--force", help="At once, without a checkpoint first.")] = False,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Start a pipeline's job anew; one that failed or was stopped runs again."""
    from penstock.api.schemas import RestartPipeline

    found = _ask(context, api, token, lambda client: client.restart_pipeline(pipeline, RestartPipeline(force=force)))
    return _print_json(found) if as_json else _print_pipelines([found])


@pipelines.command("delete")
def delete_pipeline(
    context: typer.Context, pipeline: PipelineArgument, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """Delete a pipeline whose job has ended."""
    _ask(context, api, token, lambda client: client.delete_pipeline(pipeline))


@jobs.command("list")
def list_jobs(
    context: typer.Context,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List jobs, the newest first."""
    page = _ask(context, api, token, lambda client: client.jobs(limit))
    return _print_json(page) if as_json else _print_jobs(page.data)


@jobs.command("show")
def show_job(
    context: typer.Context, job: JobArgument, as_json: JsonOption = False, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """Show a job: its state, why it failed, and the workers that it runs on."""
    found = _ask(context, api, token, lambda client: client.job(job))
    if as_json:
        return _print_json(found)
    _print_job(found)


@jobs.command("errors")
def show_errors(
    context: typer.Context,
    job: JobArgument,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List what went wrong with a job, the newest first."""
    page = _ask(context, api, token, lambda client: client.job_errors(job, limit))
    if as_json:
        return _print_json(page)
    rows = [(_time(one.at), one.kind, one.domain, one.node, one.subtask, one.message, one.hint) for one in page.data]
    terminal.show_table(("at", "kind", "domain", "node", "subtask", "message", "hint"), rows)


@jobs.command("metrics")
def show_metrics(
    context: typer.Context, job: JobArgument, as_json: JsonOption = False, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """Show what each node of a job has done so far."""
    found = _ask(context, api, token, lambda client: client.job_metrics(job))
    if as_json:
        return _print_json(found)
    rows = [
        (
            node.node,
            node.description,
            len(node.subtasks),
            f"{node.rows_in:,}",
            f"{node.rows_out:,}",
            f"{node.bad_rows:,}",
            f"{node.queued_rows:,}",
            f"{node.backpressure:.0%}",
        )
        for node in found.nodes
    ]
    columns = ("node", "operators", "subtasks", "rows in", "rows out", "bad", "queued", "backpressure")
    terminal.show_table(columns, rows)


@jobs.command("output")
def follow_output(context: typer.Context, job: JobArgument, api: ApiOption = "", token: TokenOption = "") -> None:
    """Print the rows of a job's previews as lines of JSON, until the job ends."""

    async def follow(client: Client) -> None:
        async for batch in client.output(job):
            sys.stdout.write("\n".join(batch.rows) + "\n")
            sys.stdout.flush()

    _ask(context, api, token, follow)


def _ask(context: typer.Context, api: str, token: str, ask: Callable[[Client], Awaitable[Result]]) -> Result:
    from penstock.cli.client import Client
    from penstock.cli.settings import CliSettings

    settings = context_of(context).config.section("cli", CliSettings)

    async def asking() -> Result:
        async with Client(api or settings.api, token or settings.token) as client:
            return await ask(client)

    return run_async(asking())


def _print_json(answer: BaseModel) -> None:
    print(answer.model_dump_json(indent=2))


def _print_fields(answer: BaseModel, names: Sequence[str]) -> None:
    fields = answer.model_dump(mode="json", include=set(names))
    for name in names:
        print(f"{name:<20}{'' if fields[name] is None else fields[name]}")


def _print_pipelines(found: Sequence[PipelineSummary]) -> None:
    rows = [(one.id, one.name, one.state, one.job_id, one.parallelism, _time(one.created_at)) for one in found]
    terminal.show_table(("id", "name", "state", "job", "parallelism", "created"), rows)


def _print_jobs(found: Sequence[JobSummary]) -> None:
    rows = [
        (one.id, one.pipeline_name, one.state, one.generation, one.tasks, one.error.message if one.error else "")
        for one in found
    ]
    terminal.show_table(("id", "pipeline", "state", "generation", "tasks", "error"), rows)


def _print_job(job: Job) -> None:
    names = ("id", "pipeline_id", "pipeline_name", "state", "stop", "generation", "parallelism", "tasks", "restarts")
    _print_fields(job, (*names, "created_at", "started_at", "finished_at"))
    if job.error is not None:
        print(f"{'error':<20}{job.error.message}")
        if job.error.hint:
            print(f"{'hint':<20}{job.error.hint}")
    if job.workers:
        rows = [(one.id, one.node_id, one.rpc_address, one.tasks) for one in job.workers]
        terminal.show_table(("worker", "node", "address", "tasks"), rows)


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")
