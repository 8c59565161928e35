"""`penstock pipelines`: the queries that an api elsewhere has running."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import terminal
from penstock.cli.asking import (
    ApiOption,
    JsonOption,
    LimitOption,
    TokenOption,
    ask,
    print_fields,
    print_json,
    show_bytes,
    show_time,
)
from penstock.cli.queries import QueryText, read_query
from penstock.common.jobs import StopMode

if TYPE_CHECKING:
    from penstock.api.schemas import PipelineSummary, Validation


class StopChoice(StrEnum):
    """The ways to stop a job."""

    CHECKPOINT = StopMode.CHECKPOINT
    GRACEFUL = StopMode.GRACEFUL
    IMMEDIATE = StopMode.IMMEDIATE
    FORCE = StopMode.FORCE


ParallelismOption = Annotated[
    int | None, typer.Option("--parallelism", "-p", min=1, max=1024, metavar="N", help="Subtasks of each node.")
]
FallbackOption = Annotated[
    bool,
    typer.Option("--allow-fallback", help="When the newest checkpoint is damaged, go on from an older one."),
]
PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's id, pl_….")]

pipelines = typer.Typer(help="Create, list, stop and delete pipelines of a running Penstock.", no_args_is_help=True)


@pipelines.command("list")
def list_pipelines(
    context: typer.Context,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List pipelines, the newest first."""
    page = ask(context, api, token, lambda client: client.pipelines(limit))
    if as_json:
        return print_json(page)
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
    from_savepoint: Annotated[
        str | None, typer.Option("--from-savepoint", metavar="SAVEPOINT", help="Begin with its state; an id, sv_….")
    ] = None,
    allow_fallback: FallbackOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Create nothing: say what is wrong, and what becomes of the state.")
    ] = False,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Create a pipeline of a query, which begins to run."""
    from penstock.api.schemas import CreatePipeline, ValidateQuery
    from penstock.cli.client import RequestRefused
    from penstock.common.quantities import parse_duration

    query = read_query(file)
    try:
        duration = None if interval is None else parse_duration(interval)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--checkpoint-interval") from error
    if dry_run:
        question = ValidateQuery(query=query.sql, from_savepoint=from_savepoint)
        return _print_dry_run(ask(context, api, token, lambda client: client.validate(question)), query, as_json)
    request = CreatePipeline(
        name=name or query.name,
        query=query.sql,
        parallelism=parallelism,
        checkpoint_interval=duration,
        from_savepoint=from_savepoint,
        allow_fallback=allow_fallback,
    )
    try:
        created = ask(context, api, token, lambda client: client.create_pipeline(request))
    except RequestRefused as refusal:
        if not refusal.diagnostics:
            raise
        terminal.show_diagnostics(refusal.diagnostics, query)
        raise typer.Exit(terminal.FAILED) from refusal
    if as_json:
        return print_json(created)
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
    found = ask(context, api, token, lambda client: client.pipeline(pipeline))
    if as_json:
        return print_json(found)
    print_fields(
        found,
        (
            *("id", "name", "job_id", "state", "stop", "parallelism", "checkpoint_interval", "from_savepoint"),
            *("allow_fallback", "created_at"),
        ),
    )
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
    found = ask(context, api, token, lambda client: client.update_pipeline(pipeline, update))
    return print_json(found) if as_json else _print_pipelines([found])


@pipelines.command("restart")
def restart_pipeline(
    context: typer.Context,
    pipeline: PipelineArgument,
    force: Annotated[bool, typer.Option("--force", help="At once, without a checkpoint first.")] = False,
    ignore_state: Annotated[
        bool, typer.Option("--ignore-state", help="From the very beginning, without what it has saved.")
    ] = False,
    allow_fallback: FallbackOption = False,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Start a pipeline's job anew; one that failed or was stopped runs again."""
    from penstock.api.schemas import RestartPipeline

    restart = RestartPipeline(force=force, ignore_state=ignore_state, allow_fallback=allow_fallback or None)
    found = ask(context, api, token, lambda client: client.restart_pipeline(pipeline, restart))
    return print_json(found) if as_json else _print_pipelines([found])


@pipelines.command("rebalance")
def rebalance_pipeline(
    context: typer.Context,
    pipeline: PipelineArgument,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Save a pipeline's job, and place it anew over the nodes that there are now."""
    found = ask(context, api, token, lambda client: client.rebalance_pipeline(pipeline))
    return print_json(found) if as_json else _print_pipelines([found])


@pipelines.command("delete")
def delete_pipeline(
    context: typer.Context, pipeline: PipelineArgument, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """Delete a pipeline whose job has ended."""
    ask(context, api, token, lambda client: client.delete_pipeline(pipeline))


def _print_pipelines(found: Sequence[PipelineSummary]) -> None:
    rows = [(one.id, one.name, one.state, one.job_id, one.parallelism, show_time(one.created_at)) for one in found]
    terminal.show_table(("id", "name", "state", "job", "parallelism", "created"), rows)


def _print_dry_run(found: Validation, query: QueryText, as_json: bool) -> None:
    """What a query would become; the exit code tells whether it can."""
    if as_json:
        print_json(found)
    else:
        _print_validation(found, query)
    if not found.valid or (found.state is not None and found.state.incompatible):
        raise typer.Exit(terminal.FAILED)


def _print_validation(found: Validation, query: QueryText) -> None:
    from penstock.cli.client import diagnostic_of

    terminal.show_diagnostics(map(diagnostic_of, found.diagnostics), query)
    if found.valid:
        terminal.say(f"{query.source} is valid")
    if found.state is not None:
        rows = [
            (kind, one.operator, one.description, show_bytes(one.bytes))
            for kind, operators in found.state
            for one in operators
        ]
        terminal.show_table(("state", "operator", "description", "saved"), rows)
