"""`penstock udfs`: Python functions that every query of an api can call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import terminal
from penstock.cli.asking import ApiOption, JsonOption, LimitOption, TokenOption, ask, print_json, show_time
from penstock.cli.queries import QueryText, read_query
from penstock.common.errors import NotFound

if TYPE_CHECKING:
    from penstock.api.schemas import Udf, UdfSignature
    from penstock.cli.client import Client

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A file of Python, or - for standard input.")]
FunctionOption = Annotated[
    str | None, typer.Option("--function", help="Which function of the file; else the only public one.")
]
UdfArgument = Annotated[str, typer.Argument(metavar="UDF", help="The function's name, or its id, udf_….")]

udfs = typer.Typer(help="Make, list and delete Python functions of a running Penstock.", no_args_is_help=True)


@udfs.command("create")
def create_udf(
    context: typer.Context,
    file: FileArgument,
    function: FunctionOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of one of its name.")] = False,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Make a Python function that queries can call from now on."""
    from penstock.api.schemas import CreateUdf

    text = read_query(file)
    request = CreateUdf.model_construct(source=text.sql, name=function, replace=replace)
    created = _told(text, lambda: ask(context, api, token, lambda client: client.create_udf(request)))
    return print_json(created) if as_json else _print_udfs([created])


@udfs.command("validate")
def validate_udf(
    context: typer.Context,
    file: FileArgument,
    function: FunctionOption = None,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Say what is wrong with a Python function, with line and column."""
    from penstock.api.schemas import ValidateUdf
    from penstock.cli.client import diagnostic_of

    text = read_query(file)
    request = ValidateUdf.model_construct(source=text.sql, name=function)
    found = ask(context, api, token, lambda client: client.validate_udf(request))
    if as_json:
        print_json(found)
    else:
        terminal.show_diagnostics(map(diagnostic_of, found.diagnostics), text)
        if found.udf is not None:
            terminal.say(f"{text.source} is valid: {_signature(found.udf)}")
    if not found.valid:
        raise typer.Exit(terminal.FAILED)


@udfs.command("list")
def list_udfs(
    context: typer.Context,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List Python functions, the newest first."""
    page = ask(context, api, token, lambda client: client.udfs(limit))
    return print_json(page) if as_json else _print_udfs(page.data)


@udfs.command("show")
def show_udf(
    context: typer.Context,
    udf: UdfArgument,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """Show a Python function with its source."""
    found = ask(context, api, token, lambda client: _found(client, udf))
    if as_json:
        return print_json(found)
    _print_udfs([found])
    print(found.source)


@udfs.command("delete")
def delete_udf(context: typer.Context, udf: UdfArgument, api: ApiOption = "", token: TokenOption = "") -> None:
    """Delete a Python function; running queries keep the version that they have."""

    async def delete(client: Client) -> None:
        await client.delete_udf((await _found(client, udf)).id)

    ask(context, api, token, delete)


def _told(text: QueryText, work: Callable[[], Udf]) -> Udf:
    """What is wrong with a source is shown at its place."""
    from penstock.cli.client import RequestRefused

    try:
        return work()
    except RequestRefused as refusal:
        if not refusal.diagnostics:
            raise
        terminal.show_diagnostics(refusal.diagnostics, text)
        raise typer.Exit(terminal.FAILED) from refusal


async def _found(client: Client, udf: str) -> Udf:
    if udf.startswith("udf_"):
        return await client.udf(udf)
    after: str | None = None
    while True:
        page = await client.udfs(100, after)
        for one in page.data:
            if one.name == udf.lower():
                return one
        if not page.has_more:
            raise NotFound(f"there is no function {udf}")
        after = page.data[-1].id


def _print_udfs(found: Sequence[Udf]) -> None:
    rows = [(one.id, _signature(one), one.kind, one.style, one.hash[:12], show_time(one.updated_at)) for one in found]
    terminal.show_table(("id", "function", "kind", "style", "version", "updated"), rows)


def _signature(found: UdfSignature) -> str:
    parameters = ", ".join(f"{one.name} {one.type}" for one in found.parameters)
    return f"{found.name}({parameters}) -> {found.returns}"
