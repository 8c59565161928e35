"""Encodes rows as lines of JSON in a query, where the sink writes lines: the engine does it faster than Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import OperatorKey
from penstock.compiler.analysis import Analyst
from penstock.compiler.functions import call
from penstock.compiler.plan import Input, Plan, Query, Step, Write
from penstock.compiler.relations import aliased, column, select_from_input
from penstock.compiler.types import is_json
from penstock.connectors.base import LINES, TIMESTAMP_COLUMN, EncodeOptions
from penstock.connectors.registry import CONNECTORS
from penstock.spark import can_encode

_TIMESTAMPS: Final = "timestamp_format"


async def encode_lines(plan: Plan, _: Analyst) -> Plan:
    """The plan with a query before each sink of lines; a table with a type that it cannot write keeps its rows."""
    steps: list[Step] = []
    for step in plan.steps:
        if isinstance(step.kind, Write) and _takes_lines(step.kind) and all(map(_is_encodable, step.schema)):
            encoders = list(_encoders(step, step.kind))
            steps += encoders
            step = replace(step, inputs=tuple(Input(encoder.key) for encoder in encoders), schema=LINES)
        steps.append(step)
    return replace(plan, steps=tuple(steps))


def _takes_lines(write: Write) -> bool:
    sink = CONNECTORS[write.connector].sink
    return sink is not None and sink.takes_lines


def _is_encodable(field: pa.Field) -> bool:
    return can_encode(field.type) and not _has_json_inside(field.type)


def _has_json_inside(kind: pa.DataType) -> bool:
    """Spark's types do not say which text is JSON; of a column the query does."""
    if arrow.is_struct(kind):
        return any(is_json(field) or _has_json_inside(field.type) for field in kind)
    return bool(arrow.is_list(kind)) and (is_json(kind.value_field) or _has_json_inside(kind.value_type))


def _encoders(step: Step, write: Write) -> Iterator[Step]:
    """One for each input, so that it goes into the query that makes the rows."""
    query = Query(line_select(step.schema, write.options.get(_TIMESTAMPS, _default_format())))
    for number, part in enumerate(step.inputs, 1):
        place = "" if number == 1 else str(number)
        yield Step(OperatorKey(f"lines{place}_{write.table}"), "lines of JSON", query, (part,), LINES)


def _default_format() -> str:
    return str(EncodeOptions.model_fields[_TIMESTAMPS].default)


def line_select(schema: pa.Schema, timestamp_format: str) -> exp.Select:
    """The query that makes `LINES` of rows."""
    members: list[exp.Expr | str] = []
    for field in schema:
        if field.name != TIMESTAMP_COLUMN:
            value = column(field.name)
            members += [field.name, call("penstock_raw_json", value) if is_json(field) else value]
    line = call("penstock_json_line", timestamp_format, *members)
    return select_from_input([aliased(line, LINES.names[0]), column(TIMESTAMP_COLUMN)])
