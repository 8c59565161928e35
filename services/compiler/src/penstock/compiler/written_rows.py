"""Rows as a sink writes them: changes only where they can be held, and then in the form that the sink takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from penstock.common.program import OP_COLUMN
from penstock.compiler.analysis import Analyst, inputs_of
from penstock.compiler.diagnostics import refusal
from penstock.compiler.functions import call
from penstock.compiler.plan import Write
from penstock.compiler.relations import Relation, Steps, aliased, column, select_from_input, with_metadata
from penstock.compiler.statements import Name
from penstock.compiler.types import spark_name, spark_sql_cast
from penstock.connectors.base import TIMESTAMP_COLUMN

DEBEZIUM: Final = "debezium_json"
_PREVIEW: Final = "preview"
_NOTHING: Final = "blackhole"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Brings rows to the form in which a sink writes them."""

    analyst: Analyst
    steps: Steps

    async def relation(self, sink: Write, table: Name, rows: Relation) -> Relation:
        """The rows as the sink takes them."""
        own: list[exp.Expr] = [column(field.name) for field in rows.columns]
        if sink.options.get("format") == DEBEZIUM:
            values = _envelope(rows)
        elif not rows.is_updating or sink.connector == _NOTHING:
            values = own
        elif sink.connector == _PREVIEW:
            shown = call("if", _comes(), "append", "retract")
            values = [*own, exp.Alias(this=shown, alias=exp.Identifier(this=OP_COLUMN, quoted=True))]
        else:
            message = f"the query changes rows that it gave before, which {table.text} cannot hold"
            hint = "add format = 'debezium_json' to the table, or group by a window"
            raise refusal("updating_sink", message, table.span, hint)
        select = select_from_input([*values, column(TIMESTAMP_COLUMN)])
        schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
        schema = with_metadata(schema, rows.columns)
        return self.steps.query(select, rows, schema, f"rows of {table.text}", own=table.text)


def _comes() -> exp.Expr:
    return exp.GT(this=column(OP_COLUMN), expression=exp.Literal.number(0))


def _envelope(rows: Relation) -> list[exp.Expr]:
    """Debezium's form of a change."""
    fields = [part for field in rows.columns for part in (exp.Literal.string(field.name), column(field.name))]
    row = call("named_struct", *fields)
    kind = ", ".join(f"`{field.name}`: {spark_name(field.type)}" for field in rows.columns)
    nothing = spark_sql_cast(exp.Null(), f"STRUCT<{kind}>")
    if not rows.is_updating:
        return [aliased(nothing, "before"), aliased(row, "after"), aliased(exp.Literal.string("c"), "op")]
    return [
        aliased(call("if", _comes(), nothing, row), "before"),
        aliased(call("if", _comes(), row.copy(), nothing.copy()), "after"),
        aliased(call("if", _comes(), "c", "d"), "op"),
    ]
