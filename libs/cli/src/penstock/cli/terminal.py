"""What is said on the terminal: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.cli.queries import QueryText
from penstock.common.diagnostics import Diagnostic, render_diagnostic
from penstock.common.errors import PenstockError, UserError

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


def say(text: str) -> None:
    """One line of what is going on."""
    print(text, file=sys.stderr, flush=True)


def show_error(error: PenstockError) -> None:
    """An error as a user sees it: one line, and what to do about it."""
    say(f"error: {error.message}")
    if error.hint:
        say(f"  hint: {error.hint}")


def show_diagnostics(diagnostics: Iterable[Diagnostic], query: QueryText) -> None:
    """What the compiler says, each with its place in the query."""
    for diagnostic in diagnostics:
        say(render_diagnostic(diagnostic, query.sql, query.source))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout, as wide as the terminal, or as its content elsewhere."""
    # Here, since commands that show no table start faster without it.
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 1000
    console.print(table)


def write_file(path: Path, text: str) -> None:
    """Write a result where the user wants it."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
