"""What is inserted into a table: a relation brought to the table's columns, as Postgres' assignment has it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.diagnostics import Span
from penstock.compiler.analysis import Analyst, inputs_of
from penstock.compiler.catalog import unknown_column
from penstock.compiler.diagnostics import refusal
from penstock.compiler.functions import call
from penstock.compiler.positions import Text
from penstock.compiler.relations import (
    Relation,
    Steps,
    Windows,
    aliased,
    column,
    needs_cast,
    select_from_input,
    with_metadata,
)
from penstock.compiler.statements import Name
from penstock.compiler.types import is_assignable, same_type, spark_name, spark_sql_cast, user_name
from penstock.connectors.base import DEAD_LETTERS, TIMESTAMP_COLUMN
from penstock.connectors.errors import UnsupportedType
from penstock.connectors.formats.json_encoder import JsonEncoder


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is inserted, and where: `columns` is None when the table has those of the query."""

    table: Name
    columns: pa.Schema | None
    named: tuple[Name, ...]
    query: exp.Expr


@dataclass(frozen=True, slots=True)
class Assignments:
    """Brings relations to the columns of tables."""

    analyst: Analyst
    steps: Steps
    text: Text

    async def relation(self, assignment: Assignment, source: Relation) -> Relation:
        """The rows as the table takes them."""
        targets = assignment.columns if assignment.columns is not None else pa.schema(source.columns)
        chosen = self._chosen(assignment, targets, source)
        values = []
        for target in targets:
            if (field := chosen.get(target.name)) is not None:
                values.append(_assigned(assignment.table.text, field, target))
            else:
                missing = spark_sql_cast(exp.Null(), spark_name(target.type))
                values.append(exp.Alias(this=missing, alias=exp.Identifier(this=target.name, quoted=True)))
        hidden = [column(field.name) for field in source.hidden]
        select = select_from_input([*values, *hidden])
        schema = await self.analyst.schema_of(select, inputs_of(source.schema))
        described = f"columns of {assignment.table.text}"
        relation = self.steps.query(
            select, source, with_metadata(schema, list(targets)), described, own=assignment.table.text
        )
        told = frozenset(name for name, field in chosen.items() if field.name in source.windows.columns)
        return replace(relation, windows=Windows(told, source.windows.width_us))

    def _chosen(self, assignment: Assignment, targets: pa.Schema, source: Relation) -> dict[str, pa.Field]:
        """For each column of the table that gets one, the column of the query that it gets."""
        names = [name.text for name in assignment.named] or targets.names
        for place, name in enumerate(assignment.named):
            if name.text not in targets.names:
                raise unknown_column(name, targets.names, assignment.table.text)
            if name.text in names[:place]:
                raise refusal("duplicate", f"column {name.text} is there twice", name.span)
        if len(names) != len(source.columns):
            message = f"{assignment.table.text} takes {len(names)} columns, but the query gives {len(source.columns)}"
            span = self.text.span(assignment.query)
            raise refusal("column_count", message, span, f"its columns are {', '.join(names)}")
        for name, target in zip(targets.names, targets, strict=True):
            if name not in names and not target.nullable:
                message = f"column {name} of {assignment.table.text} is NOT NULL and gets no value"
                raise refusal("not_null", message, assignment.table.span)
        for place, (name, field) in enumerate(zip(names, source.columns, strict=True)):
            target = targets.field(name)
            if not is_assignable(field.type, target.type):
                raise self._mismatch(assignment, place, field, target)
        return dict(zip(names, source.columns, strict=True))

    def _mismatch(self, assignment: Assignment, place: int, field: pa.Field, target: pa.Field) -> Exception:
        wanted, given = user_name(target.type), user_name(field.type)
        message = f"column {target.name} of {assignment.table.text} is {wanted}, but the query gives {given}"
        hint: str | None = f"write CAST(… AS {wanted})"
        if arrow.is_nested(field.type) and arrow.is_string(target.type):
            hint = "write to_json(…)"
        elif arrow.is_nested(target.type) or arrow.is_nested(field.type):
            hint = None
        return refusal("type_mismatch", message, self._value_span(assignment.query, place), hint)

    def refuse_unwritable(self, query: exp.Expr, columns: Sequence[pa.Field]) -> None:
        """Raises Refused for a column of a query that cannot be in a line of JSON."""
        for place, field in enumerate(columns):
            try:
                JsonEncoder(pa.schema([field]))
            except UnsupportedType:
                message = f"column {field.name} is {user_name(field.type)}, which JSON cannot hold"
                raise refusal("unsupported", message, self._value_span(query, place), "write CAST(… AS TEXT)") from None

    def _value_span(self, query: exp.Expr, place: int) -> Span | None:
        """The place of a column's value in a query, where the query spells it out."""
        while not isinstance(query, exp.Select) and isinstance(query, exp.SetOperation | exp.Subquery):
            query = query.this
        values = query.expressions if isinstance(query, exp.Select) else []
        has_star = any(value.is_star for value in values)
        return self.text.span(values[place] if place < len(values) and not has_star else query, query)

    async def dead_letters(self, table: Name, columns: pa.Schema | None, rows: Relation) -> Relation:
        """The rows that a source refuses, as a sink table takes them."""
        known = pa.schema([_readable(field) for field in DEAD_LETTERS if field.name != TIMESTAMP_COLUMN])
        targets = known if columns is None else columns
        values: list[exp.Expr] = []
        for target in targets:
            if target.name not in known.names:
                hint = f"dead letters have {', '.join(known.names)}"
                raise refusal("unknown_column", f"dead letters have no column {target.name}", table.span, hint)
            allowed = [known.field(target.name).type, DEAD_LETTERS.field(target.name).type]
            if not any(same_type(target.type, kind) for kind in allowed):
                message = (
                    f"column {target.name} of dead letters is {' or '.join(sorted({user_name(k) for k in allowed}))}"
                )
                raise refusal("type_mismatch", message, table.span)
            values.append(aliased(_dead_letter_value(target), target.name))
        select = select_from_input([*values, column(TIMESTAMP_COLUMN)])
        schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
        return self.steps.query(select, rows, schema, f"dead letters to {table.text}", own=table.text)


def _assigned(table: str, field: pa.Field, target: pa.Field) -> exp.Expr:
    value: exp.Expr = column(field.name)
    if needs_cast(field.type, target.type):
        value = spark_sql_cast(value, spark_name(target.type))
    if field.nullable and not target.nullable:
        value = call(
            "coalesce", value, call("raise_error", f"column {target.name} of {table} is NOT NULL, but got NULL")
        )
    return aliased(value, target.name)


def _readable(field: pa.Field) -> pa.Field:
    return field.with_type(pa.string()) if arrow.is_binary(field.type) else field


def _dead_letter_value(target: pa.Field) -> exp.Expr:
    if arrow.is_binary(DEAD_LETTERS.field(target.name).type) and arrow.is_string(target.type):
        return call("make_valid_utf8", spark_sql_cast(column(target.name), "STRING"))
    return column(target.name)


def preview_name(taken: Collection[str]) -> str:
    """A name for the preview of a SELECT, which no table and no other preview has."""
    names = itertools.chain(["preview"], (f"preview_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
