"""`penstock savepoints`: state of jobs that is kept, for pipelines to begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import terminal
from penstock.cli.asking import (
    ApiOption,
    JobArgument,
    JsonOption,
    LimitOption,
    TokenOption,
    ask,
    print_fields,
    print_json,
    show_bytes,
    show_time,
)

if TYPE_CHECKING:
    from penstock.api.schemas import Savepoint
    from penstock.cli.client import Client

SavepointArgument = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The savepoint's id, sv_….")]

savepoints = typer.Typer(help="Make, list and delete savepoints of a running Penstock.", no_args_is_help=True)


@savepoints.command("create")
def create_savepoint(
    context: typer.Context,
    job: JobArgument,
    name: Annotated[str | None, typer.Option("--name", help="Its name; else its id.")] = None,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Have a job make a savepoint, which is creating until its next checkpoint is complete."""
    # The api says what is wrong with a name.
    from penstock.api.schemas import CreateSavepoint

    request = CreateSavepoint.model_construct(name=name)
    found = ask(context, api, token, lambda client: client.create_savepoint(job, request))
    return print_json(found) if as_json else _print_savepoints([found])


@savepoints.command("list")
def list_savepoints(
    context: typer.Context,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Those of one job; else of all.")] = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List savepoints, the newest first."""
    page = ask(context, api, token, lambda client: client.savepoints(limit, job))
    return print_json(page) if as_json else _print_savepoints(page.data)


@savepoints.command("show")
def show_savepoint(
    context: typer.Context,
    savepoint: SavepointArgument,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Show a savepoint: whether it is ready, and of which job and checkpoint it is."""
    found = ask(context, api, token, lambda client: client.savepoint(savepoint))
    if as_json:
        return print_json(found)
    print_fields(found, ("id", "name", "job_id", "pipeline_id", "state", "epoch", "bytes", "error", "created_at"))


@savepoints.command("delete")
def delete_savepoint(
    context: typer.Context, savepoint: SavepointArgument, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """Delete a savepoint that no pipeline needs."""

    async def delete(client: Client) -> None:
        await client.delete_savepoint(await client.savepoint(savepoint))

    ask(context, api, token, delete)


def _print_savepoints(found: Sequence[Savepoint]) -> None:
    rows = [
        (
            one.id,
            one.name,
            one.state,
            one.job_id,
            one.epoch,
            show_bytes(one.bytes),
            show_time(one.created_at),
            one.error,
        )
        for one in found
    ]
    terminal.show_table(("id", "name", "state", "job", "epoch", "size", "created", "error"), rows)
