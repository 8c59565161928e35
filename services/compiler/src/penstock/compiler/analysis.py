"""Spark's analysis of a step's query, with its errors told in the user's terms and at the user's place."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import INPUT
from penstock.compiler.diagnostics import Refused, refusal
from penstock.compiler.dialect import marked_spark_sql, spark_sql
from penstock.compiler.functions import REWRITES
from penstock.compiler.messages import explain
from penstock.compiler.positions import Text, extent
from penstock.spark import AggregationAnalysis, EngineFault, FragmentRefused, FunctionKind, Position
from penstock.spark.errors import QueryError

T = TypeVar("T")

_STAND_IN: Final = re.compile(r"\b_[akg]\d+\b")
_MARK: Final = re.compile(r"/\*@(\d+)\*/")


class Analyser(Protocol):
    """What analyses a query."""

    async def schema_of(self, sql: str, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        """What a query gives; raises QueryError."""
        ...

    async def used_by(self, sql: str, inputs: Mapping[str, pa.Schema]) -> Mapping[str, pa.Schema]:
        """What a query reads of its inputs; raises QueryError."""
        ...

    async def analyse_aggregation(self, sql: str, schema: pa.Schema) -> AggregationAnalysis:
        """What an aggregation gives, and its partial results; raises QueryError."""
        ...


class Analyst:
    """Analyses the queries of one text."""

    def __init__(self, engine: Analyser, text: Text, functions: Mapping[str, FunctionKind]) -> None:
        self._engine = engine
        self._text = text
        self._functions = functions

    def makes_rows(self, function: str) -> bool:
        """Whether a function makes rows of one row."""
        return self._functions.get(function.lower()) is FunctionKind.GENERATOR

    async def schema_of(self, select: exp.Expr, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        """What a query over these inputs gives; raises Refused where Spark refuses it."""
        return await self._told(select, inputs, self._engine.schema_of(self._spark_sql(select), inputs))

    async def used_by(self, select: exp.Expr, schema: pa.Schema) -> pa.Schema:
        """How little of rows of a schema gives a query the same result; raises Refused where Spark refuses it."""
        inputs = inputs_of(schema)
        used = await self._told(select, inputs, self._engine.used_by(self._spark_sql(select), inputs))
        return used[INPUT]

    async def analyse_aggregation(self, select: exp.Select, schema: pa.Schema) -> AggregationAnalysis:
        """What an aggregation of such rows gives, and its partial results; raises Refused where Spark refuses it."""
        analysing = self._engine.analyse_aggregation(spark_sql(select), schema)
        return await self._told(select, inputs_of(schema), analysing)

    async def _told(self, select: exp.Expr, inputs: Mapping[str, pa.Schema], analysing: Awaitable[T]) -> T:
        """What Spark says of a query, or its refusal in the user's terms."""
        try:
            return await analysing
        except QueryError as error:
            raise await self._refusal(select, inputs, error) from error
        except FragmentRefused as error:
            raise refusal("unsupported", error.message, self._text.span(select), error.hint) from error
        except EngineFault as error:
            if "StackOverflow" not in error.message + error.trace:
                raise
            raise refusal("too_complex", "the query is nested too deeply", self._text.span(select)) from error

    def _spark_sql(self, select: exp.Expr) -> str:
        try:
            return spark_sql(select)
        except RecursionError as error:
            raise refusal("too_complex", "the query is nested too deeply", self._text.span(select)) from error
        except ValueError as error:
            message = "this query holds something that is not supported"
            raise refusal("unsupported", message, self._text.span(select)) from error

    async def _refusal(self, select: exp.Expr, inputs: Mapping[str, pa.Schema], error: QueryError) -> Refused:
        marked, marks = marked_spark_sql(select)
        position = error.position
        try:
            await self._engine.schema_of(marked, inputs)
        except QueryError as again:
            position = again.position
        node = _nearest(marked, marks, position)
        columns = [name for schema in inputs.values() for name in schema.names]
        said = explain(error, columns, [*self._functions, *REWRITES], self._written(node))
        span = self._text.span(_blamed(select, node, error), node, select)
        return refusal(said.code, _STAND_IN.sub(self._named(select), said.message), span, said.hint)

    def _named(self, select: exp.Expr) -> Callable[[re.Match[str]], str]:
        """What the user wrote where a query has a column that stands for it."""
        written = {
            found.name: self._written(found) for found in select.find_all(exp.Column) if "start" in (found._meta or {})
        }
        return lambda name: written.get(name[0], name[0])

    def _written(self, node: exp.Expr | None) -> str:
        """What the user wrote at the place of an error."""
        return "" if node is None else self._text.content[node.meta["start"] : node.meta["end"] + 1]


def _nearest(marked: str, marks: list[exp.Expr], position: Position | None) -> exp.Expr | None:
    """The node whose mark is nearest to a position: right at it, else the last before it, else the first after it."""
    if position is None:
        return None
    offset = _offset(marked, position)
    found = [match for match in _MARK.finditer(marked) if int(match[1]) < len(marks)]
    before = [match for match in found if match.start() <= offset]
    nearest = before[-1] if before else found[0] if found else None
    # A call begins with its own name, and an operator with its left side.
    exact = next((match for match in found if match.start() == offset), nearest)
    return None if exact is None else marks[int(exact[1])]


def _blamed(select: exp.Expr, node: exp.Expr | None, error: QueryError) -> exp.Expr | None:
    """The part of a query that an error is about, where Spark points at the beginning of it or at nothing."""
    family, _, kind = error.error_class.partition(".")
    if kind == "FILTER_NOT_BOOLEAN" and isinstance(select, exp.Select):
        where: exp.Expr | None = select.args.get("where")
        return where
    if family == "FIELD_NOT_FOUND" and (name := re.search(r"`([^`]*)`", error.message)):
        return next((found for found in select.find_all(exp.Identifier) if found.name == name[1]), None)
    if family == "DATATYPE_MISMATCH" and node is not None:
        operator = node.find_ancestor(exp.Binary, exp.Anonymous, exp.Select)
        begins = (
            operator is not None
            and extent(operator) is not None
            and (extent(operator) or (0,))[0] == node.meta["start"]
        )
        return operator if begins and isinstance(operator, exp.Binary) else node
    return node


def _offset(text: str, position: Position) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: position.line - 1]) + position.column - 1


def inputs_of(schema: pa.Schema) -> Mapping[str, pa.Schema]:
    """The inputs of a step."""
    return {INPUT: schema}
