"""What the commands share that ask an api: their options, and how they print what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli.context import context_of, run_async

if TYPE_CHECKING:
    from pydantic import BaseModel

    from penstock.cli.client import Client

Result = TypeVar("Result")

ApiOption = Annotated[
    str, typer.Option("--api", envvar="PENSTOCK_API", metavar="URL", help="The api; else cli.api of the settings.")
]
TokenOption = Annotated[
    str, typer.Option("--token", envvar="PENSTOCK_TOKEN", help="The api's token.", show_envvar=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, as the api answers.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="The most to list, newest first.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, job_….")]


def ask(context: typer.Context, api: str, token: str, question: Callable[[Client], Awaitable[Result]]) -> Result:
    """What the api answers."""
    from penstock.cli.client import Client
    from penstock.cli.settings import CliSettings

    settings = context_of(context).config.section("cli", CliSettings)

    async def asking() -> Result:
        async with Client(api or settings.api, token or settings.token) as client:
            return await question(client)

    return run_async(asking())


def print_json(answer: BaseModel) -> None:
    print(answer.model_dump_json(indent=2))


def print_fields(answer: BaseModel, names: Sequence[str]) -> None:
    """Some fields of an answer, one a line."""
    fields = answer.model_dump(mode="json", include=set(names))
    for name in names:
        print(f"{name:<20}{'' if fields[name] is None else fields[name]}")


def show_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def show_bytes(count: int) -> str:
    """A number of bytes, to three digits."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} {unit}" if size >= 100 else f"{size:.3g} {unit}"
