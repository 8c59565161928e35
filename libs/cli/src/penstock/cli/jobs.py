"""`penstock jobs`: what became of pipelines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import MAXYEAR, datetime
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
    from penstock.api.schemas import Checkpoint, Job, JobSummary, OperatorCheckpoint, TimeSpan
    from penstock.cli.client import Client

jobs = typer.Typer(help="Look at the jobs of a running Penstock.", no_args_is_help=True)


@jobs.command("list")
def list_jobs(
    context: typer.Context,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List jobs, the newest first."""
    page = ask(context, api, token, lambda client: client.jobs(limit))
    return print_json(page) if as_json else _print_jobs(page.data)


@jobs.command("show")
def show_job(
    context: typer.Context, job: JobArgument, as_json: JsonOption = False, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """Show a job: its state, why it failed, and the workers that it runs on."""
    found = ask(context, api, token, lambda client: client.job(job))
    if as_json:
        return print_json(found)
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
    page = ask(context, api, token, lambda client: client.job_errors(job, limit))
    if as_json:
        return print_json(page)
    rows = [
        (show_time(one.at), one.kind, one.domain, one.node, one.subtask, one.message, one.hint) for one in page.data
    ]
    terminal.show_table(("at", "kind", "domain", "node", "subtask", "message", "hint"), rows)


@jobs.command("checkpoints")
def show_checkpoints(
    context: typer.Context,
    job: JobArgument,
    epoch: Annotated[
        int | None, typer.Argument(metavar="EPOCH", min=0, help="Of one: how long each subtask took.")
    ] = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    api: ApiOption = "",
    token: TokenOption = "",
) -> None:
    """List the checkpoints of a job, the newest first, or show where the time of one went."""
    if epoch is not None:
        wanted = epoch
        operators = ask(context, api, token, lambda client: client.checkpoint_operators(job, wanted))
        return print_json(operators) if as_json else _print_spans(operators.data)
    page = ask(context, api, token, lambda client: client.job_checkpoints(job, limit))
    return print_json(page) if as_json else _print_checkpoints(page.data)


@jobs.command("metrics")
def show_metrics(
    context: typer.Context, job: JobArgument, as_json: JsonOption = False, api: ApiOption = "", token: TokenOption = ""
) -> None:
    """Show what each node of a job has done so far."""
    found = ask(context, api, token, lambda client: client.job_metrics(job))
    if as_json:
        return print_json(found)
    rows = [
        (
            node.node,
            node.description,
            len(node.subtasks),
            f"{node.rows_in:,}",
            f"{node.rows_out:,}",
            f"{node.bad_rows:,}",
            f"{node.late_rows:,}",
            f"{node.queued_rows:,}",
            f"{node.state_rows:,}",
            _watermark(node.watermark),
            f"{node.backpressure:.0%}",
        )
        for node in found.nodes
    ]
    counts = ("rows in", "rows out", "bad", "late", "queued", "state")
    columns = ("node", "operators", "subtasks", *counts, "watermark", "backpressure")
    terminal.show_table(columns, rows)


@jobs.command("output")
def follow_output(context: typer.Context, job: JobArgument, api: ApiOption = "", token: TokenOption = "") -> None:
    """Print the rows of a job's previews as lines of JSON, until the job ends."""

    async def follow(client: Client) -> None:
        async for batch in client.output(job):
            sys.stdout.write("\n".join(batch.rows) + "\n")
            sys.stdout.flush()

    ask(context, api, token, follow)


def _print_jobs(found: Sequence[JobSummary]) -> None:
    rows = [
        (one.id, one.pipeline_name, one.state, one.generation, one.tasks, one.error.message if one.error else "")
        for one in found
    ]
    terminal.show_table(("id", "pipeline", "state", "generation", "tasks", "error"), rows)


def _print_job(job: Job) -> None:
    names = ("id", "pipeline_id", "pipeline_name", "state", "stop", "generation", "parallelism", "tasks", "restarts")
    print_fields(job, (*names, "created_at", "started_at", "finished_at"))
    if job.error is not None:
        print(f"{'error':<20}{job.error.message}")
        if job.error.hint:
            print(f"{'hint':<20}{job.error.hint}")
    if job.workers:
        rows = [(one.id, one.node_id, one.rpc_address, one.tasks) for one in job.workers]
        terminal.show_table(("worker", "node", "address", "tasks"), rows)


def _watermark(at: datetime | None) -> str:
    if at is None:
        return ""
    return "the end" if at.year == MAXYEAR else show_time(at)


def _print_checkpoints(found: Sequence[Checkpoint]) -> None:
    rows = [
        (
            one.epoch,
            one.state,
            show_time(one.started_at),
            None if one.duration_seconds is None else f"{one.duration_seconds:.3f} s",
            show_bytes(one.bytes),
            "yes" if one.then_stop else "",
            one.savepoint_id,
            one.error,
        )
        for one in found
    ]
    columns = ("epoch", "state", "started", "duration", "written", "then stop", "savepoint", "error")
    terminal.show_table(columns, rows)


def _print_spans(operators: Sequence[OperatorCheckpoint]) -> None:
    columns = ("operator", "description", "subtask", "aligned", "frozen", "written", "committed", "bytes")
    terminal.show_table(columns, [row for operator in operators for row in _span_rows(operator)])


def _span_rows(operator: OperatorCheckpoint) -> Iterator[Sequence[object]]:
    """A line for each subtask; only the first says of which operator."""
    names = (operator.operator, operator.description)
    for subtask in operator.subtasks:
        spans = (_duration(subtask.alignment), _duration(subtask.frozen), _duration(subtask.written))
        committed = None if subtask.committed_at is None else f"{subtask.committed_at:%H:%M:%S.%f}"[:-3]
        yield (*names, subtask.subtask, *spans, committed, show_bytes(subtask.bytes))
        names = ("", "")


def _duration(span: TimeSpan | None) -> str:
    if span is None:
        return ""
    return "…" if span.duration_seconds is None else f"{1000 * span.duration_seconds:,.1f} ms"
