"""SQL in, a program or diagnostics out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from penstock.common.diagnostics import Diagnostic
from penstock.common.program import Program
from penstock.common.quantities import format_size
from penstock.compiler.analysis import Analyst
from penstock.compiler.diagnostics import Problems
from penstock.compiler.emit import emit
from penstock.compiler.parse import parse
from penstock.compiler.passes import PASSES
from penstock.compiler.planner import Planner
from penstock.compiler.positions import Text
from penstock.spark import Analysis, FunctionKind

MAX_QUERY_CHARACTERS: Final = 256 * 1024


class Engine(Protocol):
    """What the compiler needs of an engine."""

    async def analyse(self, sql: str, inputs: Mapping[str, pa.Schema]) -> Analysis:
        """What a query gives and what it reads; raises SqlError."""
        ...

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
    if len(query) > MAX_QUERY_CHARACTERS:
        limit = format_size(MAX_QUERY_CHARACTERS)
        problems.error("too_complex", f"the query is longer than {limit}", None, "split it into several pipelines")
        return Compilation(None, problems.diagnostics)
    program = await _compile(query, engine, problems, preview=preview)
    return Compilation(None if problems.has_errors else program, problems.diagnostics)


async def _compile(query: str, engine: Engine, problems: Problems, *, preview: bool) -> Program | None:
    text = Text(query)
    # In a thread: a long query takes as long as others would have to wait.
    statements = await asyncio.to_thread(parse, query, problems)
    kinds = await engine.functions()
    analyst = Analyst(engine, text, kinds)
    planner = Planner(analyst, text, problems, kinds, preview=preview)
    with problems.collecting():
        plan = await planner.plan(statements)
        if problems.has_errors:
            return None
        for improve in PASSES:
            plan = await improve(plan, analyst)
        return emit(plan)
    return None
