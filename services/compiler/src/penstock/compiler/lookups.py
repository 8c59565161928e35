"""Joins with lookup tables: the rows' keys in a query, a step that asks the table, and what else the condition says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import JoinKind, LookupJoin
from penstock.compiler.analysis import inputs_of
from penstock.compiler.catalog import ConnectorTable
from penstock.compiler.diagnostics import Refused, refusal
from penstock.compiler.functions import call
from penstock.compiler.joins import JoinClause, Operand, TableJoin
from penstock.compiler.named_rows import named_rows
from penstock.compiler.planning import Planning
from penstock.compiler.relations import Relation, aliased, column, select_from_input, with_metadata
from penstock.compiler.rewrite import to_spark
from penstock.compiler.types import same_type, spark_name, spark_sql_cast, user_name

_KEY: Final = "_lookup"
"""The columns of keys that are looked up, numbered."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A join with a lookup table: the table, by which name the query calls it, and the join as the user wrote it."""

    table: ConnectorTable
    name: str
    clause: JoinClause

    @property
    def is_outer(self) -> bool:
        return self.clause.kind is JoinKind.LEFT

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table in their order."""
        return columns_of(self.table)

    def inner(self, name: str) -> str:
        """What one of its columns is called among the tables."""
        return f"{self.name}.{name}"

    @property
    def hint(self) -> str:
        keys = [f"… = {self.inner(name)}" for name in self.table.lookup_key().names]
        return f"write ON {' AND '.join(keys)}"


@dataclass(frozen=True, slots=True)
class Condition:
    """What a join says: the value of each column of the key, and what is asked beyond that."""

    keys: Mapping[str, exp.Expr]
    others: tuple[exp.Expr, ...]


def columns_of(table: ConnectorTable) -> pa.Schema:
    """The columns of a lookup table in their order."""
    keys = table.lookup_key()
    declared = [found.field for found in table.statement.columns]
    return pa.schema([keys.field(one.name) if one.name in keys.names else one for one in declared])


@dataclass(frozen=True, slots=True)
class Lookups(Planning):
    """Plans joins with lookup tables."""

    async def relation(self, operand: Operand, join: TableJoin) -> Relation:
        """The rows so far, with what a lookup table has for them."""
        assert join.table.looked_up is not None
        joined = Joined(join.table.looked_up, join.table.name, join.clause)
        condition = self._condition(joined)
        return await self._joined(await named_rows(self, operand), joined, condition)

    # What the user wrote ----------------------------------------------------------------------------------------------

    def check(self, join: exp.Join, table: ConnectorTable) -> None:
        """Refuses a join that a lookup table cannot have."""
        written = join.this
        if (version := written.args.get("version")) is not None:
            message = f"{table.name} is looked up when a row comes, whatever the row's time is"
            hint = "leave out FOR SYSTEM_TIME AS OF"
            raise refusal("unsupported", message, self.text.span(version.expression, written), hint)
        extra = [name for name, value in written.args.items() if value and name not in ("this", "alias")]
        if extra or ((alias := written.args.get("alias")) is not None and alias.args.get("columns")):
            what = extra[0].upper() if extra else "a list of columns"
            raise refusal("unsupported", f"{what} is not supported with a lookup table", self.text.span(written))
        if join.side in ("RIGHT", "FULL") or join.kind in ("SEMI", "ANTI"):
            spoken = " ".join(filter(None, [join.side, join.kind]))
            message = f"a {spoken} JOIN would need all rows of {table.name}, which is looked up by its key"
            raise refusal("unsupported", message, self.text.span(written), "write JOIN or LEFT JOIN")

    def _condition(self, joined: Joined) -> Condition:
        """The condition taken apart; it must equate the whole key."""
        keys, others = {joined.inner(name): name for name in joined.table.lookup_key().names}, []
        own = frozenset(map(joined.inner, joined.columns.names))
        values: dict[str, exp.Expr] = {}
        for part in joined.clause.conditions:
            found = _equated(part, keys, own)
            if found is None or found[0] in values:
                others.append(to_spark(part, self.text))
            else:
                values[found[0]] = to_spark(found[1], self.text)
        missing = [name for name in keys.values() if name not in values]
        if missing:
            raise self._missing(joined, missing[0])
        return Condition({name: values[name] for name in keys.values()}, tuple(others))

    def _missing(self, joined: Joined, name: str) -> Refused:
        written = joined.clause.written
        condition = written.args.get("on")
        if not joined.clause.conditions:
            message = f"{joined.table.name} is a lookup table, which is joined by its key"
            return refusal("lookup_condition", message, self.text.span(written.this), joined.hint)
        message = f"{joined.table.name} is looked up by its key, and this condition does not equate {name}"
        span = self.text.span(*filter(None, [condition]), written.this)
        return refusal("lookup_condition", message, span, joined.hint)

    # Steps ------------------------------------------------------------------------------------------------------------

    async def _joined(self, rows: Relation, joined: Joined, condition: Condition) -> Relation:
        keyed = await self._keyed(rows, joined, condition)
        table = joined.table
        looked_up = pa.schema([*table.lookup_key(), *table.lookup_values()])
        names = {joined.inner(field.name): field.name for field in joined.columns}
        added = [
            field.with_name(joined.inner(field.name)).with_nullable(field.nullable or joined.is_outer)
            for field in joined.columns
        ]
        keys = tuple(f"{_KEY}{number}" for number in range(len(condition.keys)))
        kind = LookupJoin(
            table.connector.name, table.name, table.connector_options(), looked_up, keys, names, joined.is_outer
        )
        schema = pa.schema([*rows.columns, *added, *rows.hidden])
        found = self.steps.lookup(kind, keyed, schema, f"look up {table.name}")
        if condition.others:
            found = await self._filtered(found, added, condition.others, is_outer=joined.is_outer)
        return replace(found, windows=rows.windows, late_letters=rows.late_letters, times=rows.times)

    async def _keyed(self, rows: Relation, joined: Joined, condition: Condition) -> Relation:
        """The rows with the keys that they are looked up by, in the types that the table has."""
        probe = select_from_input([aliased(value.copy(), name) for name, value in condition.keys.items()])
        given = await self.analyst.schema_of(probe, inputs_of(rows.schema))
        keys = [
            aliased(self._key(joined, field, value, given.field(field.name).type), f"{_KEY}{number}")
            for number, (field, value) in enumerate(
                zip(joined.table.lookup_key(), condition.keys.values(), strict=True)
            )
        ]
        own, hidden = [column(field.name) for field in rows.columns], [column(field.name) for field in rows.hidden]
        select = select_from_input([*own, *keys, *hidden])
        schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
        schema = with_metadata(schema, rows.columns)
        return self.steps.query(select, rows, schema, f"keys of {joined.table.name}")

    def _key(self, joined: Joined, field: pa.Field, value: exp.Expr, given: pa.DataType) -> exp.Expr:
        """A value as a key of the table; one that does not fit its type equals none, and so is null."""
        if same_type(given, field.type):
            return value
        is_number = arrow.is_integer(field.type) or arrow.is_decimal(field.type)
        if not arrow.is_null(given) and not (arrow.is_integer(given) and is_number):
            wanted = user_name(field.type)
            message = f"{joined.name}.{field.name} is {wanted}, and is compared with {user_name(given)}"
            span = self.text.span(value, joined.clause.written)
            raise refusal("type_mismatch", message, span, f"write CAST(… AS {wanted})")
        cast = spark_sql_cast(value, spark_name(field.type))
        return exp.TryCast(this=cast.this, to=cast.to, safe=True)

    async def _filtered(
        self, rows: Relation, added: Sequence[pa.Field], conditions: Sequence[exp.Expr], *, is_outer: bool
    ) -> Relation:
        """The rows that the rest of the condition keeps; of an outer join all, without what was looked up in vain."""
        condition = exp.and_(*conditions)
        names = {field.name for field in added}
        own = [
            aliased(call("if", condition.copy(), column(field.name), exp.Null()), field.name)
            if is_outer and field.name in names
            else column(field.name)
            for field in rows.columns
        ]
        hidden = [column(field.name) for field in rows.hidden]
        select = select_from_input([*own, *hidden], where=None if is_outer else condition)
        schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
        return self.steps.query(select, rows, with_metadata(schema, rows.columns), "condition of a lookup")


def _equated(part: exp.Expr, keys: Mapping[str, str], own: frozenset[str]) -> tuple[str, exp.Expr] | None:
    """The column of the key that a condition equates with a value of the other side, and that value."""
    if not isinstance(part, exp.EQ):
        return None
    for key, value in ((part.this, part.expression), (part.expression, part.this)):
        is_own = any(found.parts[0].name in own for found in value.find_all(exp.Column))
        if isinstance(key, exp.Column) and key.name in keys and not is_own and not isinstance(value, exp.Any):
            return keys[key.name], value.copy()
    return None
