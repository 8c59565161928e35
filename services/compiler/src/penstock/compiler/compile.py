"""SQL in, a program or diagnostics out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.common.diagnostics import Diagnostic
from penstock.common.program import Program
from penstock.common.quantities import format_size
from penstock.compiler.analysis import Analyser, Analyst
from penstock.compiler.diagnostics import Problems
from penstock.compiler.emit import emit
from penstock.compiler.parse import parse
from penstock.compiler.passes import PASSES
from penstock.compiler.planner import Planner
from penstock.compiler.positions import Text
from penstock.spark import FunctionKind

MAX_QUERY_CHARACTERS: Final = 256 * 1024


class Engine(Analyser, Protocol):
    """What the compiler needs of an engine."""

    async def functions(self) -> Mapping[str, FunctionKind]:
        """All functions that SQL can call."""
        ...


@dataclass(frozen=True, slots=True)
class Compilation:
    """A program, or None when a diagnostic is an error."""

    program: Program | None
    diagnostics: tuple[Diagnostic, ...]


async def compile_query(query: str, engine: Engine, *, preview: bool = False) -> Compilation:
    """Compiles a query; with `preview` every sink shows its rows instead. Raises nothing that is the query's fault."""
    problems = Problems()
    program: Program | None = None
    if len(query) > MAX_QUERY_CHARACTERS:
        limit = format_size(MAX_QUERY_CHARACTERS)
        problems.error("too_complex", f"the query is longer than {limit}", None, "split it into several pipelines")
        return Compilation(None, problems.diagnostics)
    try:
        with problems.collecting():
            program = await _compile(query, engine, problems, preview=preview)
    except RecursionError:
        hint = "name parts of the query with WITH or CREATE VIEW"
        problems.error("too_complex", "the query is nested too deeply", None, hint)
    return Compilation(None if problems.has_errors else program, problems.diagnostics)


async def _compile(query: str, engine: Engine, problems: Problems, *, preview: bool) -> Program | None:
    text = Text(query)
    # In a thread: a long query takes as long as others would have to wait.
    statements = await asyncio.to_thread(parse, query, problems)
    kinds = await engine.functions()
    analyst = Analyst(engine, text, kinds)
    plan = await Planner(analyst, text, problems, kinds, preview=preview).plan(statements)
    if problems.has_errors:
        return None
    for improve in PASSES:
        plan = await improve(plan, analyst)
    return emit(plan)
