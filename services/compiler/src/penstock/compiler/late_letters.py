"""Letters about rows that are too late for their windows."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from penstock.common.program import WATERMARK_COLUMN
from penstock.compiler.analysis import Analyst, inputs_of
from penstock.compiler.functions import call
from penstock.compiler.relations import (
    POSITION_COLUMN,
    Relation,
    Steps,
    aliased,
    column,
    identifier,
    select_from_input,
)
from penstock.compiler.tables import SelectSource
from penstock.compiler.types import spark_sql_cast
from penstock.compiler.windows import Window, closes_at, later
from penstock.connectors.base import TIMESTAMP_COLUMN

_REASON: Final = "late: its window could take rows until %s, and the watermark was %s"


async def note_late_letters(
    source: SelectSource, where: exp.Expr | None, window: Window, lateness_us: int, analyst: Analyst, steps: Steps
) -> None:
    """Notes the rows of a table that are too late for a window, if its owner wants them."""
    rows = source.relation
    if rows.late_letters is None or not rows.has_watermark:
        return
    timely = _rows(source, where)
    schema = await analyst.schema_of(timely, inputs_of(rows.schema))
    kept = steps.query(timely, rows, schema, "rows that may be late", own="late")
    select = _letters(Relation(kept.inputs, schema), rows.late_letters, later(closes_at(window), lateness_us))
    letters = await analyst.schema_of(select, inputs_of(schema))
    steps.late_letters.append((rows.late_letters, steps.query(select, kept, letters, "late rows", own="late")))


def _rows(source: SelectSource, where: exp.Expr | None) -> exp.Select:
    columns = [column(field.name, source.name) for field in source.relation.schema]
    condition = None if where is None else where.copy()
    return select_from_input(columns, alias=source.alias, where=condition)


def _letters(rows: Relation, table: str, closed_at: exp.Expr) -> exp.Select:
    fields = [part for field in rows.columns for part in (exp.Literal.string(field.name), column(field.name))]
    payload = spark_sql_cast(call("to_json", call("named_struct", *fields)), "BINARY")
    position = column(POSITION_COLUMN) if POSITION_COLUMN in rows.schema.names else exp.Literal.string("")
    moments = [spark_sql_cast(moment, "STRING") for moment in (closed_at.copy(), column(WATERMARK_COLUMN))]
    reason = call("format_string", _REASON, *moments)
    now = exp.Alias(this=call("localtimestamp"), alias=identifier(TIMESTAMP_COLUMN))
    is_late = exp.LTE(this=closed_at, expression=column(WATERMARK_COLUMN))
    return select_from_input(
        [
            aliased(exp.Literal.string(table), "source"),
            aliased(position, "position"),
            aliased(reason, "reason"),
            aliased(payload, "payload"),
            now,
        ],
        where=is_late,
    )
