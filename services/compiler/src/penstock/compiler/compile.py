"""SQL in, a program or diagnostics out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa

from penstock.common.diagnostics import Diagnostic
from penstock.common.program import Program
from penstock.common.quantities import format_size
from penstock.common.udfs import Shape
from penstock.compiler.analysis import Analyser, Analyst
from penstock.compiler.created_functions import created_functions
from penstock.compiler.diagnostics import Problems
from penstock.compiler.emit import emit
from penstock.compiler.parse import parse
from penstock.compiler.passes import PASSES
from penstock.compiler.planner import Planner
from penstock.compiler.positions import Text
from penstock.compiler.udf_calls import UdfCalls
from penstock.compiler.udfs import BuiltUdf, Udfs
from penstock.spark import FunctionKind

MAX_QUERY_CHARACTERS: Final = 256 * 1024


class Engine(Analyser, Protocol):
    """What the compiler needs of an engine."""

    async def functions(self) -> Mapping[str, FunctionKind]:
        """All functions that SQL can call."""
        ...

    async def declare(self, name: str, returns: pa.DataType) -> None:
        """Lets queries be analysed that call a Python function."""
        ...


@dataclass(frozen=True, slots=True)
class QueryFunctions:
    """Python functions that a query can call besides those that it creates, and what builds the latter."""

    udfs: Udfs
    built: Sequence[BuiltUdf] = ()
    store: bool = True
    """Whether artifacts of what it creates are stored, without which nothing can run it."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """A program, or None when a diagnostic is an error."""

    program: Program | None
    diagnostics: tuple[Diagnostic, ...]


async def compile_query(
    query: str, engine: Engine, *, preview: bool = False, functions: QueryFunctions | None = None
) -> Compilation:
    """Compiles a query; with `preview` every sink shows its rows instead. Raises nothing that is the query's fault."""
    problems = Problems()
    program: Program | None = None
    if len(query) > MAX_QUERY_CHARACTERS:
        limit = format_size(MAX_QUERY_CHARACTERS)
        problems.error("too_complex", f"the query is longer than {limit}", None, "split it into several pipelines")
        return Compilation(None, problems.diagnostics)
    try:
        with problems.collecting():
            program = await _compile(query, engine, problems, functions or QueryFunctions(Udfs()), preview=preview)
    except RecursionError:
        hint = "name parts of the query with WITH or CREATE VIEW"
        problems.error("too_complex", "the query is nested too deeply", None, hint)
    return Compilation(None if problems.has_errors else program, problems.diagnostics)


async def _compile(
    query: str, engine: Engine, problems: Problems, functions: QueryFunctions, *, preview: bool
) -> Program | None:
    text = Text(query)
    # In a thread: a long query takes as long as others would have to wait.
    statements = await asyncio.to_thread(parse, query, problems)
    kinds = await engine.functions()
    created = await created_functions(statements, functions.udfs, text, kinds, problems, store=functions.store)
    calls = UdfCalls({**{udf.name: udf for udf in functions.built}, **created}, text)
    statements = calls.bound(statements, problems)
    for function in calls.called:
        if function.signature.shape is not Shape.ASYNC:
            await engine.declare(function.key, function.gives)
    analyst = Analyst(engine, text, kinds)
    planner = Planner(analyst, text, problems, kinds, preview=preview, udfs=calls.hoisted)
    plan = await planner.plan(statements)
    if problems.has_errors:
        return None
    for improve in PASSES:
        plan = await improve(plan, analyst)
    return replace(emit(plan), functions=calls.called)
