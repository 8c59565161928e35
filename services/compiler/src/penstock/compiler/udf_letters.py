"""Letters about rows for which a Python function failed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from penstock.compiler.functions import call
from penstock.compiler.relations import (
    POSITION_COLUMN,
    Relation,
    aliased,
    column,
    identifier,
    select_from_input,
)
from penstock.compiler.types import spark_sql_cast
from penstock.connectors.base import TIMESTAMP_COLUMN


def part(name: str, field: str) -> exp.Expr:
    """The value, or the error, of what a function gave."""
    return exp.Dot(this=column(name), expression=identifier(field))


def failed_rows(function: str, name: str, rows: Relation, columns: Sequence[pa.Field]) -> exp.Select:
    """The rows for which a function failed, as letters; `name` is the column of what it gave."""
    fields = [piece for field in columns for piece in (exp.Literal.string(field.name), column(field.name))]
    payload = spark_sql_cast(call("to_json", call("named_struct", *fields)), "BINARY")
    position = column(POSITION_COLUMN) if POSITION_COLUMN in rows.schema.names else exp.Literal.string("")
    failed = exp.Not(this=exp.Is(this=part(name, "error"), expression=exp.Null()))
    reason = call("coalesce", part(name, "error"), "")
    return select_from_input(
        [
            aliased(exp.Literal.string(function), "source"),
            aliased(position, "position"),
            aliased(reason, "reason"),
            aliased(payload, "payload"),
            exp.Alias(this=call("localtimestamp"), alias=identifier(TIMESTAMP_COLUMN)),
        ],
        where=failed,
    )
