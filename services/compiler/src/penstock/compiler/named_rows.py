"""What was joined so far as rows for another step: each column under the name that it has among the tables."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from penstock.compiler.analysis import inputs_of
from penstock.compiler.joins import Operand
from penstock.compiler.plan import nested
from penstock.compiler.planning import Planning
from penstock.compiler.relations import Relation, aliased, column, select_from_input, with_metadata


async def named_rows(planning: Planning, operand: Operand) -> Relation:
    """The rows of an operand that are what they must be; those of an earlier join are so already."""
    rows = operand.relation
    if not operand.where and list(operand.names) == list(operand.names.values()):
        return rows
    fields = [rows.schema.field(own).with_name(name) for own, name in operand.names.items()]
    hidden = [column(field.name) for field in rows.hidden]
    select = select_from_input([*(aliased(column(own), name) for own, name in operand.names.items()), *hidden])
    schema = pa.schema([*fields, *rows.hidden])
    if operand.where:
        values = [*(column(field.name) for field in fields), *(one.copy() for one in hidden)]
        where = exp.and_(*(part.copy() for part in operand.where), copy=False)
        select = nested(select_from_input(values, where=where), select)
        schema = with_metadata(await planning.analyst.schema_of(select, inputs_of(rows.schema)), fields)
    named = planning.steps.query(select, rows, schema, "rows to join")
    return Relation(named.inputs, named.schema, operand.windows, rows.late_letters, times=operand.times)
