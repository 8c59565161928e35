"""Calls of Python functions in a query: from the names and values that the user writes to those that Spark is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import Function
from penstock.common.udfs import Shape
from penstock.compiler.diagnostics import Known, Problems, refusal
from penstock.compiler.functions import WRITTEN, call
from penstock.compiler.positions import Text
from penstock.compiler.statements import Column, CreateFunction, CreateTable, CreateView, Insert, Select, Set, Statement
from penstock.compiler.types import spark_name, spark_sql_cast
from penstock.compiler.udfs import BuiltUdf

_GROUP: Final = "collect_list"


class UdfCalls:
    """The Python functions that one query can call, by their names; None for one that is wrong."""

    def __init__(self, udfs: Mapping[str, BuiltUdf | None], text: Text) -> None:
        self._udfs = udfs
        self._text = text
        self._called: dict[str, BuiltUdf] = {}

    @property
    def called(self) -> tuple[Function, ...]:
        """Those that the query calls."""
        return tuple(udf.function for udf in self._called.values())

    @property
    def hoisted(self) -> Mapping[str, BuiltUdf]:
        """Those that are called in steps of their own, by their keys: async ones, and those whose failures are kept."""
        called = {udf.function.key: udf for udf in self._called.values()}
        return {
            key: udf
            for key, udf in called.items()
            if udf.function.signature.shape is Shape.ASYNC or udf.function.catches
        }

    def bound(self, statements: Iterable[Statement], problems: Problems) -> tuple[Statement, ...]:
        """Statements in which calls are by the functions' keys; what is wrong goes to the problems."""
        found: list[Statement] = []
        for statement in statements:
            if isinstance(statement, CreateFunction):
                continue
            known = len(found)
            with problems.collecting():
                found.append(self._bound(statement))
            if len(found) == known:
                found += _faulty(statement)
        return tuple(found)

    def _bound(self, statement: Statement) -> Statement:
        match statement:
            case Insert(query=query) | Select(query=query):
                return replace(statement, query=self._query(query))
            case CreateView(query=query):
                return statement if query is None else replace(statement, query=self._query(query))
            case CreateTable(query=query, columns=columns):
                computed = tuple(map(self._column, columns))
                return replace(statement, columns=computed, query=None if query is None else self._query(query))
            case Set() | CreateFunction():
                return statement

    def _column(self, column: Column) -> Column:
        if column.computed is None:
            return column
        tree = self._tree(column.computed)
        for found in tree.find_all(exp.Anonymous):
            if found.name in self.hoisted:
                message = f"the function {found.meta[WRITTEN]} is called in a step of its own, not in a computed column"
                raise refusal("misplaced_async", message, self._text.place(found), "call it in a SELECT")
        return replace(column, computed=tree)

    def _query(self, query: exp.Query) -> exp.Query:
        tree = self._tree(query)
        assert isinstance(tree, exp.Query)
        return tree

    def _tree(self, tree: exp.Expr) -> exp.Expr:
        if not self._udfs:
            return tree
        root = exp.Paren(this=tree.copy())
        for node in reversed(list(root.walk(bfs=True))):
            if isinstance(node, exp.Anonymous) and node.name.lower() in self._udfs:
                self._bind(node, node.name.lower())
        result: exp.Expr = root.this
        return result

    def _bind(self, node: exp.Anonymous, name: str) -> None:
        udf = self._udfs[name]
        if udf is None:
            raise Known
        self._called[name] = udf
        signature = udf.function.signature
        if signature.shape is Shape.AGGREGATE:
            self._bind_aggregate(node, name, udf.function)
            return
        values = self._values(node, name, node.expressions, signature.parameters)
        bound = call(udf.function.key, *(values or [exp.Literal.number(0)]))
        node.replace(_at(bound, node, name))

    def _bind_aggregate(self, node: exp.Anonymous, name: str, function: Function) -> None:
        """A group's values are put together by Spark, in an order of their own, and then the function is called."""
        is_distinct = len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Distinct)
        written = node.expressions[0].expressions if is_distinct else node.expressions
        parameters = function.signature.parameters
        values = self._values(node, name, written, parameters)
        fields = [part for place, value in enumerate(values) for part in (exp.Literal.string(f"_{place}"), value)]
        row = call("named_struct", *fields)
        whole = _at(call(_GROUP, exp.Distinct(expressions=[row]) if is_distinct else row), node, name)
        top: exp.Expr = node
        while isinstance(top.parent, exp.Filter | exp.Window) and top.arg_key == "this":
            top = top.parent
        needed = [value.copy() for value, field in zip(values, parameters, strict=True) if not field.nullable]
        node.replace(whole)
        top = whole if top is node else top
        gathered = _filtered(top, whole, needed)
        ordered = gathered if _has_map(parameters) else call("sort_array", gathered.copy())
        top.replace(_at(call(function.key, ordered), node, name))

    def _values(
        self, node: exp.Anonymous, name: str, written: Sequence[exp.Expr], parameters: pa.Schema
    ) -> list[exp.Expr]:
        """The arguments of a call, in the types of the parameters."""
        if len(written) != len(parameters):
            plural = "" if len(parameters) == 1 else "s"
            message = f"{name} takes {len(parameters)} argument{plural}, not {len(written)}"
            hint = f"its parameters are {', '.join(parameters.names)}" if len(parameters) else None
            raise refusal("wrong_arguments", message, self._text.place(node), hint)
        return [
            spark_sql_cast(value.copy(), spark_name(field.type))
            for value, field in zip(written, parameters, strict=True)
        ]


def _faulty(statement: Statement) -> list[Statement]:
    """What is left of a statement that is wrong: a name of which nothing more is said."""
    match statement:
        case CreateView():
            return [replace(statement, query=None)]
        case CreateTable():
            return [replace(statement, has_faults=True)]
        case _:
            return []


def _filtered(top: exp.Expr, whole: exp.Expr, needed: list[exp.Expr]) -> exp.Expr:
    """The gathering of a group without rows that lack a value which the function does not take."""
    if not needed:
        return top
    conditions = [exp.Not(this=exp.Is(this=value, expression=exp.Null())) for value in needed]
    condition = exp.and_(*conditions)
    copy = top.copy()
    inside = next(found for found in copy.find_all(exp.Anonymous) if found == whole)
    around = inside.parent
    if isinstance(around, exp.Filter) and inside.arg_key == "this":
        said = around.expression.this
        said.replace(exp.And(this=exp.Paren(this=said.copy()), expression=exp.Paren(this=condition)))
        return copy
    filtered = exp.Filter(this=inside.copy(), expression=exp.Where(this=condition))
    if inside is copy:
        return filtered
    inside.replace(filtered)
    return copy


def _has_map(parameters: pa.Schema) -> bool:
    """Whether values have no order."""
    return any(_is_map(field.type) for field in parameters)


def _is_map(kind: pa.DataType) -> bool:
    if arrow.is_struct(kind):
        return any(_is_map(field.type) for field in kind)
    return bool(arrow.is_map(kind)) or (bool(arrow.is_list(kind)) and _is_map(kind.value_type))


def _at(bound: exp.Anonymous, node: exp.Anonymous, name: str) -> exp.Anonymous:
    """A call at the place of the user's, that knows how the user spelled it."""
    bound.meta.update({**(node._meta or {}), WRITTEN: name})
    return bound
