"""Calls in a SELECT of functions that are async, or whose failures are kept: made in steps ahead of it, which give it
their results as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import AsyncUdf
from penstock.common.udfs import Shape
from penstock.compiler.analysis import inputs_of
from penstock.compiler.diagnostics import refusal
from penstock.compiler.dialect import spark_sql
from penstock.compiler.functions import WRITTEN
from penstock.compiler.grouping import Named, is_aggregate
from penstock.compiler.planning import Planning
from penstock.compiler.relations import Relation, aliased, column, select_from_input
from penstock.compiler.rewrite import to_spark
from penstock.compiler.tables import SelectSource
from penstock.compiler.udf_letters import failed_rows, part
from penstock.compiler.udfs import BuiltUdf
from penstock.spark import FunctionKind

_RESULT: Final = "_udf"
"""How the columns of results begin."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A SELECT, what it reads and its columns."""

    select: exp.Select
    source: SelectSource
    projections: Named

    def trees(self) -> Iterator[exp.Expr]:
        """All that it computes."""
        yield from (value for _, value in self.projections)
        for clause in ("where", "group", "having"):
            if (found := self.select.args.get(clause)) is not None:
                yield found


@dataclass(frozen=True, slots=True)
class AsyncCalls(Planning):
    """Plans such calls."""

    kinds: Mapping[str, FunctionKind]
    udfs: Mapping[str, BuiltUdf] = field(default_factory=dict)

    async def awaited(self, selected: Selected) -> Selected:
        """The SELECT with columns in the place of calls, and with what gives them as its source."""
        number = 0
        while calls := self._innermost(selected):
            call = calls[0]
            self._check(call, selected)
            selected = await self._without(call, f"{_RESULT}{number}", selected)
            number += 1
        return selected

    def _innermost(self, selected: Selected) -> list[exp.Anonymous]:
        if not self.udfs:
            return []
        return [
            found
            for tree in selected.trees()
            for found in tree.find_all(exp.Anonymous)
            if found.name in self.udfs and not any(self._calls_inside(found))
        ]

    def _calls_inside(self, call: exp.Anonymous) -> Iterator[bool]:
        yield from (found is not call and found.name in self.udfs for found in call.find_all(exp.Anonymous))

    def _check(self, call: exp.Anonymous, selected: Selected) -> None:
        name, place = call.meta[WRITTEN], self.text.place(call)
        if selected.source.laterals:
            hint = "put UNNEST into a query in FROM"
            raise refusal("unsupported", f"UNNEST beside the function {name} is not supported", place, hint)
        if any(is_aggregate(found, self.kinds) or isinstance(found, exp.Window) for found in call.walk()):
            hint = "compute the inner one in a query in FROM"
            raise refusal("misplaced_async", f"the function {name} cannot be called with aggregates", place, hint)
        if call.find_ancestor(exp.Lambda) is not None:
            raise refusal("misplaced_async", f"the function {name} cannot be called in a lambda", place)

    async def _without(self, call: exp.Anonymous, name: str, selected: Selected) -> Selected:
        udf, source = self.udfs[call.name], selected.source
        kept, before = _split(selected.select.args.get("where"), self.udfs)
        where = None if before is None else to_spark(before, self.text)
        if udf.function.signature.shape is Shape.ASYNC:
            parameters = udf.function.signature.parameters
            arguments = tuple(f"{name}_{place}" for place in range(len(parameters)))
            values = dict(zip(arguments, call.expressions, strict=False))
            rows = await self._computed(values, source, where, f"arguments of {call.meta[WRITTEN]}")
            relation = self._called(udf, arguments, name, rows, source.relation)
        else:
            relation = await self._computed({name: call}, source, where, f"{call.meta[WRITTEN]}(…)")
        if udf.function.catches:
            relation = await self._caught(udf, name, relation, source, call)
        relation = replace(relation, windows=source.relation.windows, late_letters=source.relation.late_letters)
        select = selected.select.copy()
        select.set("where", None if kept is None else exp.Where(this=kept))
        return _replaced(Selected(select, SelectSource(relation, source.name, ()), selected.projections), call, name)

    async def _computed(
        self, values: Mapping[str, exp.Expr], source: SelectSource, where: exp.Expr | None, description: str
    ) -> Relation:
        """The rows that a condition lets through, with values beside them."""
        columns = [
            *(column(found.name, source.name) for found in source.relation.columns),
            *(aliased(to_spark(value, self.text), name) for name, value in values.items()),
            *(column(found.name, source.name) for found in source.relation.hidden),
        ]
        step = select_from_input(columns, alias=source.alias, where=where)
        schema = await self.analyst.schema_of(step, inputs_of(source.relation.schema))
        return self.steps.query(step, source.relation, schema, description, own="udf")

    def _called(
        self, udf: BuiltUdf, arguments: tuple[str, ...], name: str, rows: Relation, source: Relation
    ) -> Relation:
        calls = udf.calls
        columns = [found for found in rows.columns if found.name not in arguments]
        kind = AsyncUdf(
            udf.function.key,
            arguments,
            name,
            calls.ordered or source.is_updating,  # a change must not overtake another of its key
            calls.in_flight,
            calls.timeout // timedelta(milliseconds=1) or 1,
            calls.retries,
        )
        schema = pa.schema([*columns, pa.field(name, udf.function.gives), *rows.hidden])
        return self.steps.awaiting(kind, rows, schema, f"{udf.name}(…)")

    async def _caught(
        self, udf: BuiltUdf, name: str, rows: Relation, source: SelectSource, call: exp.Anonymous
    ) -> Relation:
        """The rows for which a function did not fail; letters about the others are noted."""
        if source.relation.is_updating:
            message = f"rows for which {udf.name} fails cannot be letters where rows change"
            raise refusal("unsupported", message, self.text.place(call))
        own = [found for found in source.relation.columns if not found.name.startswith(_RESULT)]
        letters = failed_rows(udf.name, name, rows, own)
        schema = await self.analyst.schema_of(letters, inputs_of(rows.schema))
        kept = self.steps.query(letters, rows, schema, f"failures of {udf.name}", own="udf")
        self.steps.udf_letters.append((udf.calls.dead_letter or "", kept))
        columns = [column(found.name) if found.name != name else aliased(part(name, "value"), name)
                   for found in rows.schema]  # fmt: skip
        select = select_from_input(columns, where=exp.Is(this=part(name, "error"), expression=exp.Null()))
        schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
        return self.steps.query(select, rows, schema, f"results of {udf.name}", own="udf")


def _split(where: exp.Expr | None, udfs: Mapping[str, BuiltUdf]) -> tuple[exp.Expr | None, exp.Expr | None]:
    """The parts of a condition that wait for calls, and those that rows can be chosen by before."""
    if where is None:
        return None, None
    condition = where.this
    parts = [*condition.flatten()] if isinstance(condition, exp.And) else [condition]
    waiting = [part for part in parts if any(found.name in udfs for found in part.find_all(exp.Anonymous))]
    others = [part for part in parts if not any(part is found for found in waiting)]
    return _joined(waiting), _joined(others)


def _joined(parts: list[exp.Expr]) -> exp.Expr | None:
    return exp.and_(*(part.copy() for part in parts)) if parts else None


def _replaced(selected: Selected, call: exp.Anonymous, name: str) -> Selected:
    """The same with a column in the place of each call that is the same as this one."""
    text = spark_sql(call)

    def without(tree: exp.Expr) -> exp.Expr:
        root = exp.Paren(this=tree.copy())
        for found in list(root.find_all(exp.Anonymous)):
            if found.name == call.name and spark_sql(found) == text:
                result = column(name, selected.source.name)
                result.meta.update(found.meta)
                found.replace(result)
        inner: exp.Expr = root.this
        return inner

    select = selected.select.copy()
    for clause in ("where", "group", "having"):
        if (found := select.args.get(clause)) is not None:
            select.set(clause, without(found))
    return replace(
        selected, select=select, projections=tuple((named, without(value)) for named, value in selected.projections)
    )
