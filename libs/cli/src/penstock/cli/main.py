"""The `penstock` command. What a command needs is imported by it: `--help` should not wait for Spark."""

from __future__ import annotations

import logging
import os
import sys
import time
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import terminal
from penstock.cli.context import CliContext, context_of, run_async
from penstock.cli.jobs import jobs
from penstock.cli.nodes import nodes
from penstock.cli.pipelines import ParallelismOption, pipelines
from penstock.cli.queries import RunRequest, read_query
from penstock.cli.savepoints import savepoints
from penstock.cli.udfs import udfs
from penstock.common.errors import InternalError, PenstockError, SettingsError

if TYPE_CHECKING:
    from penstock.common.service import Main

app = typer.Typer(
    name="penstock",
    help="Streaming SQL on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(pipelines, name="pipelines")
app.add_typer(jobs, name="jobs")
app.add_typer(savepoints, name="savepoints")
app.add_typer(udfs, name="udfs")
app.add_typer(nodes, name="nodes")


_TRACEBACK = "PENSTOCK_TRACEBACK"


class Picture(StrEnum):
    """The forms of a drawn program."""

    MERMAID = "mermaid"
    HTML = "html"
    SVG = "svg"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A file of SQL, or - for standard input.")]
StateDirOption = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="Where everything is kept.", file_okay=False)
]


def main() -> None:
    """The entry point: runs a command, and tells its errors in a line each."""
    try:
        app()
    except PenstockError as error:
        terminal.show_error(error)
        sys.exit(terminal.MISUSED if isinstance(error, SettingsError) else terminal.FAILED)
    except BrokenPipeError:
        # Whoever read the output has had enough of it; what is left in the buffer would fail again at exit.
        sys.stdout = None
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        terminal.show_error(
            InternalError(f"unexpected {type(error).__name__}: {error}", hint=f"set {_TRACEBACK}=1 to see where")
        )
        sys.exit(terminal.FAILED)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {version('penstock-cli')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings that go before penstock.toml's.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Streaming SQL on Spark."""
    context.obj = CliContext(config)


@app.command(short_help="Run one query here until its sources end.")
def run(
    context: typer.Context,
    file: FileArgument,
    parallelism: ParallelismOption = None,
    state_dir: StateDirOption = None,
    name: Annotated[str, typer.Option("--name", help="The pipeline's name; else the file's.")] = "",
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="What is logged on stderr.")] = LogLevel.ERROR,
) -> None:
    """Run one query here, with everything that it needs, until its sources end.

    The rows of its SELECTs are printed as lines of JSON, its progress on stderr. Ctrl-C stops it in order, and with
    exit code 130. With --state-dir, what was stopped is taken up again by the next run.
    """
    started_at = time.monotonic()
    from penstock.cli.running import run_query

    query = read_query(file)
    request = RunRequest(query, name or query.name, parallelism, state_dir)
    config = context_of(context).config
    _log_to_stderr(log_level)
    sys.exit(run_async(run_query(config, request, started_at)))


@app.command(short_help="Start Penstock on this machine; Ctrl-C stops it.")
def up(
    context: typer.Context,
    state_dir: StateDirOption = None,
    logs: Annotated[bool, typer.Option("--logs", help="Log here instead of in the state folder.")] = False,
) -> None:
    """Start Penstock on this machine, with all that it needs; Ctrl-C stops it.

    Postgres and NATS are started too, unless database.url or nats.url say where they are. Pipelines and their state
    are kept in the state folder, and go on when it is started again.
    """
    from penstock.cli.standing import stand_up

    found = context_of(context)
    sys.exit(run_async(stand_up(found.config, found.config_file, state_dir, logs_here=logs)))


@app.command(short_help="Say everything that is wrong with a query.")
def validate(context: typer.Context, file: FileArgument) -> None:
    """Say everything that is wrong with a query, with line and column; exit code 1 when something is."""
    from penstock.cli.compiling import compile_here

    query = read_query(file)
    config = context_of(context).config
    _log_to_stderr(LogLevel.ERROR)
    compiled = run_async(compile_here(config, query))
    terminal.show_diagnostics(compiled.diagnostics, query)
    if compiled.program is None:
        raise typer.Exit(terminal.FAILED)
    terminal.say(f"{query.source} is valid")


@app.command()
def visualize(
    context: typer.Context,
    file: FileArgument,
    picture: Annotated[Picture, typer.Option("--format", "-f", help="The form of the picture.")] = Picture.MERMAID,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to; else stdout.", dir_okay=False)
    ] = None,
) -> None:
    """Draw the dataflow that a query is compiled to."""
    from penstock.cli.compiling import compile_here
    from penstock.cli.drawing import draw_html, draw_svg
    from penstock.common.program_text import mermaid

    query = read_query(file)
    config = context_of(context).config
    _log_to_stderr(LogLevel.ERROR)
    compiled = run_async(compile_here(config, query))
    terminal.show_diagnostics(compiled.diagnostics, query)
    if compiled.program is None:
        raise typer.Exit(terminal.FAILED)
    match picture:
        case Picture.MERMAID:
            text = mermaid(compiled.program)
        case Picture.HTML:
            text = draw_html(compiled.program, query.name)
        case Picture.SVG:
            text = draw_svg(compiled.program)
    if output is None:
        sys.stdout.write(text)
    else:
        terminal.write_file(output, text)


@app.command(short_help="Bring the database's schema up to date.")
def migrate(context: typer.Context) -> None:
    """Bring the schema of the database at database.url up to this version's."""
    from penstock.cli.migration import migrate_database

    versions = run_async(migrate_database(context_of(context).config))
    done = f"applied {', '.join(f'{version:04}' for version in versions)}" if versions else "nothing to apply"
    terminal.say(f"the schema is up to date: {done}")


@app.command(short_help="Run the api: REST and events.")
def api(context: typer.Context) -> None:
    """Run the api: REST and events, for a cluster of several processes."""
    from penstock.api.service import run

    sys.exit(_run_service("api", run, context))


@app.command()
def controller(context: typer.Context) -> None:
    """Run the controller: the state of jobs, and where they run."""
    from penstock.controller.service import run

    sys.exit(_run_service("controller", run, context))


@app.command()
def compiler(context: typer.Context) -> None:
    """Run the compiler: SQL to programs."""
    from penstock.compiler.service import run

    sys.exit(_run_service("compiler", run, context))


@app.command()
def node(context: typer.Context) -> None:
    """Run a node: the workers of one machine."""
    from penstock.node.service import run

    sys.exit(_run_service("node", run, context))


@app.command()
def worker(context: typer.Context) -> None:
    """Run one worker, which nodes and controllers do by themselves."""
    from penstock.worker.service import main as run

    sys.exit(_run_service("worker", run, context))


def _run_service(name: str, run: Main, context: typer.Context) -> int:
    from penstock.common.service import run_service

    return run_service(name, run, config_file=context_of(context).config_file)


def _log_to_stderr(level: LogLevel) -> None:
    from penstock.common.telemetry import LogSettings, configure_logging

    configure_logging(LogSettings(level=level.value, format="auto"), service="penstock")
    # It logs each request, and this process makes one after the other.
    logging.getLogger("httpx").setLevel(logging.WARNING)
