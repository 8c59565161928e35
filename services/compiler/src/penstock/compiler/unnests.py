"""UNNEST among other tables: a step that gives the rows so far once for each element of an array."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from penstock.compiler.analysis import inputs_of
from penstock.compiler.joins import Operand
from penstock.compiler.named_rows import named_rows
from penstock.compiler.names import FromTable, Names
from penstock.compiler.planning import Planning
from penstock.compiler.relations import Relation, aliased, column, select_from_input, with_metadata
from penstock.compiler.rewrite import to_spark


@dataclass(frozen=True, slots=True)
class Unnests(Planning):
    """Plans arrays that are unnested beside what they are of."""

    async def table(self, lateral: exp.Lateral, names: Names) -> FromTable:
        """The elements of an array of the tables so far, as a table."""
        resolved = lateral.copy()
        resolved.set("this", names.resolved(lateral.this, self.text))
        known = [found.with_name(one.spelled(found.name)) for one in names.tables for found in one.relation.schema]
        element = _element(lateral)
        probe = select_from_input([element], laterals=[to_spark(resolved, self.text)])
        schema = await self.analyst.schema_of(probe, inputs_of(pa.schema(known)))
        return FromTable(lateral.args["alias"].name, Relation((), schema), unnested=resolved)

    async def relation(self, operand: Operand, name: str, lateral: exp.Lateral) -> Relation:
        """The rows so far with an element each."""
        rows = await named_rows(self, operand)
        element = _element(lateral)
        values = [column(field.name) for field in rows.columns]
        hidden = [column(field.name) for field in rows.hidden]
        added = aliased(element, f"{name}.{element.name}")
        select = select_from_input([*values, added, *hidden], laterals=[to_spark(lateral, self.text)])
        schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
        found = self.steps.query(select, rows, with_metadata(schema, rows.columns), f"unnest {name}")
        return replace(found, windows=rows.windows, late_letters=rows.late_letters, times=rows.times)


def _element(lateral: exp.Lateral) -> exp.Column:
    alias = lateral.args["alias"]
    return column(alias.args["columns"][0].name, alias.name)
