"""Joins with lookup tables: the rows' keys in a query, a step that asks the table, and what else the condition says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import LookupJoin
from penstock.compiler.analysis import inputs_of
from penstock.compiler.catalog import ConnectorTable
from penstock.compiler.checks import Clause, check_expressions
from penstock.compiler.diagnostics import refusal
from penstock.compiler.functions import call
from penstock.compiler.joins import conjuncts
from penstock.compiler.lookup_names import Names, Side
from penstock.compiler.planning import Planning
from penstock.compiler.relations import Relation, Windows, aliased, column, select_from_input, with_metadata
from penstock.compiler.rewrite import to_spark
from penstock.compiler.tables import SelectSource
from penstock.compiler.types import same_type, spark_name, spark_sql_cast, user_name
from penstock.spark import FunctionKind

_KEY: Final = "_lookup"
"""The columns of keys that are looked up, numbered."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A join with a lookup table: the join as the user wrote it, and the table."""

    join: exp.Join
    table: ConnectorTable

    @property
    def name(self) -> str:
        """By which the query calls the table."""
        return self.join.this.alias or self.table.name

    @property
    def is_outer(self) -> bool:
        return bool(self.join.side == "LEFT")

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table in their order."""
        keys = self.table.lookup_key()
        declared = [found.field for found in self.table.statement.columns]
        return pa.schema([keys.field(one.name) if one.name in keys.names else one for one in declared])


@dataclass(frozen=True, slots=True)
class Condition:
    """What ON says: the value of each column of the key, and what is asked beyond that."""

    keys: Mapping[str, exp.Expr]
    others: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class Lookups(Planning):
    """Plans joins with lookup tables."""

    kinds: Mapping[str, FunctionKind]

    async def applied(
        self, select: exp.Select, source: SelectSource, joins: Sequence[Joined]
    ) -> tuple[exp.Select, SelectSource]:
        """What a SELECT over rows and lookup tables reads, and the SELECT by the names that the columns then have."""
        if source.laterals:
            hint = "put UNNEST into a query in FROM"
            raise refusal("unsupported", "UNNEST beside a lookup is not supported", self.text.span(select), hint)
        side = Side(source.name, pa.schema(source.relation.columns))
        rows, names = self._renamed(source.relation, side), Names((side,), self.text)
        for joined in joins:
            self._check(joined, names)
            added = names.with_side(Side(joined.name, joined.columns))
            rows, names = await self._joined(rows, joined, self._condition(joined, added)), added
        return names.select(select), SelectSource(rows, None, ())

    def _renamed(self, rows: Relation, side: Side) -> Relation:
        """The rows with the names that their columns have beside others."""
        fields = [field.with_name(side.inner(field.name)) for field in rows.columns]
        values = [aliased(column(old.name), new.name) for old, new in zip(rows.columns, fields, strict=True)]
        select = select_from_input([*values, *(column(field.name) for field in rows.hidden)])
        named = self.steps.query(select, rows, pa.schema([*fields, *rows.hidden]), "rows to look up")
        told = frozenset(map(side.inner, rows.windows.columns))
        return replace(named, windows=Windows(told, rows.windows.width_us), late_letters=rows.late_letters)

    # What the user wrote ----------------------------------------------------------------------------------------------

    def _check(self, joined: Joined, names: Names) -> None:
        join, table = joined.join, joined.join.this
        if (version := table.args.get("version")) is not None:
            message = f"{joined.table.name} is looked up when a row comes, whatever the row's time is"
            hint = "leave out FOR SYSTEM_TIME AS OF"
            raise refusal("unsupported", message, self.text.span(version.expression, table), hint)
        extra = [name for name, value in table.args.items() if value and name not in ("this", "alias")]
        if extra or ((alias := table.args.get("alias")) is not None and alias.args.get("columns")):
            what = extra[0].upper() if extra else "a list of columns"
            raise refusal("unsupported", f"{what} is not supported with a lookup table", self.text.span(table))
        if join.side in ("RIGHT", "FULL") or join.kind in ("SEMI", "ANTI"):
            spoken = " ".join(filter(None, [join.side, join.kind]))
            message = f"a {spoken} JOIN would need all rows of {joined.table.name}, which is looked up by its key"
            raise refusal("unsupported", message, self.text.span(table), "write JOIN or LEFT JOIN")
        if join.args.get("on") is None:
            message = f"{joined.table.name} is a lookup table, which is joined by its key"
            raise refusal("lookup_condition", message, self.text.span(table), self._hint(joined))
        if any(side.name == joined.name for side in names.sides):
            hint = "give one of them another name with AS"
            raise refusal("duplicate", f"two tables are called {joined.name}", self.text.span(table), hint)
        check_expressions(join.args["on"], Clause.ON, self.kinds, self.text)

    def _hint(self, joined: Joined) -> str:
        keys = [f"… = {joined.name}.{name}" for name in joined.table.lookup_key().names]
        return f"write ON {' AND '.join(keys)}"

    def _condition(self, joined: Joined, names: Names) -> Condition:
        """The condition taken apart; it must equate the whole key."""
        own = Side(joined.name, joined.columns)
        keys, others = {own.inner(name): name for name in joined.table.lookup_key().names}, []
        values: dict[str, exp.Expr] = {}
        condition = joined.join.args["on"]
        for part in conjuncts(condition):
            resolved = names.resolved(part)
            found = _equated(resolved, keys, {own.inner(name) for name in joined.columns.names})
            if found is None or found[0] in values:
                others.append(to_spark(resolved, self.text))
            else:
                values[found[0]] = to_spark(found[1], self.text)
        missing = [name for name in keys.values() if name not in values]
        if missing:
            message = f"{joined.table.name} is looked up by its key, and this condition does not equate {missing[0]}"
            raise refusal("lookup_condition", message, self.text.span(condition, joined.join), self._hint(joined))
        return Condition({name: values[name] for name in keys.values()}, tuple(others))

    # Steps ------------------------------------------------------------------------------------------------------------

    async def _joined(self, rows: Relation, joined: Joined, condition: Condition) -> Relation:
        keyed = await self._keyed(rows, joined, condition)
        table, own = joined.table, Side(joined.name, joined.columns)
        looked_up = pa.schema([*table.lookup_key(), *table.lookup_values()])
        names = {own.inner(field.name): field.name for field in joined.columns}
        added = [
            field.with_name(own.inner(field.name)).with_nullable(field.nullable or joined.is_outer)
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
        return replace(found, windows=rows.windows, late_letters=rows.late_letters)

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
            raise refusal("type_mismatch", message, self.text.span(value, joined.join), f"write CAST(… AS {wanted})")
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


def _equated(part: exp.Expr, keys: Mapping[str, str], own: set[str]) -> tuple[str, exp.Expr] | None:
    """The column of the key that a condition equates with a value of the other side, and that value."""
    if not isinstance(part, exp.EQ):
        return None
    for key, value in ((part.this, part.expression), (part.expression, part.this)):
        is_own = any(found.name in own for found in value.find_all(exp.Column))
        if isinstance(key, exp.Column) and key.name in keys and not is_own and not isinstance(value, exp.Any):
            return keys[key.name], value.copy()
    return None
