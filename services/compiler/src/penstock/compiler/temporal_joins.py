"""Joins with versions: rows of the left beside what the right had of their key at their event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import (
    HASH_COLUMN,
    LEFT,
    OP_COLUMN,
    RIGHT,
    WATERMARK_COLUMN,
    JoinKind,
    TemporalJoin,
)
from penstock.compiler.analysis import inputs_of
from penstock.compiler.changes import hash_of
from penstock.compiler.diagnostics import listed, refusal
from penstock.compiler.dialect import spark_sql
from penstock.compiler.joins import (
    NOT_NULL_TIME,
    JoinClause,
    Joins,
    Keys,
    Operand,
    equality,
    is_there,
    named,
)
from penstock.compiler.late_letters import note_late_letters
from penstock.compiler.plan import Key, nested
from penstock.compiler.planning import Planning
from penstock.compiler.relations import Relation, Versions, Windows, aliased, column, select_from_input
from penstock.compiler.rewrite import to_spark
from penstock.compiler.tables import SelectSource
from penstock.compiler.temporal_queries import as_of_query, unreplaced, versions_query
from penstock.compiler.types import spark_sql_cast
from penstock.compiler.windows import Inherited, is_on_time
from penstock.connectors.base import TIMESTAMP_COLUMN

_GIVEN: Final = frozenset({JoinKind.INNER, JoinKind.LEFT})


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The conditions of a join: what equals the key of versions, what is asked of the left alone, and the rest."""

    pairs: tuple[tuple[exp.Expr, exp.Expr], ...]
    before: tuple[exp.Expr, ...]
    rest: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class TemporalJoins(Planning):
    """Plans joins with versions."""

    async def relation(self, left: Operand, right: Operand, clause: JoinClause, used: frozenset[str]) -> Relation:
        """The rows of a join, with the columns that are used; these are called as the operands' names say."""
        self._check(left, clause)
        right, versions = await self._versioned(right, clause)
        clause = replace(clause, conditions=tuple(to_spark(part, self.text) for part in clause.conditions))
        matched = self._matched(left, right, clause, versions)
        kinds = await self._joins.key_types(left, right, matched.pairs, clause)
        names = tuple(f"_k{place}" for place in range(len(kinds)))
        asked = {found.parts[0].name for part in matched.rest for found in part.find_all(exp.Column)}
        left = replace(left, where=(*left.where, *matched.before))
        keys = [Keys(tuple(pair[place] for pair in matched.pairs), kinds, names) for place in (0, 1)]
        own = [tuple(name for name in side.names.values() if name in used | asked) for side in (left, right)]
        rows = await self._left(left, keys[0], own[0], clause)
        changes = await self._right(right, keys[1], own[1], versions)
        select = as_of_query(names, own[0], own[1], clause.kind, matched.rest)
        await self.analyst.schema_of(select, {LEFT: rows.schema, RIGHT: changes.schema})
        resolved = versions_query(names, own[1], changes.schema, versions.order, is_changing=right.relation.is_updating)
        kind = TemporalJoin(
            rows.schema, changes.schema, spark_sql(resolved), spark_sql(select), self.settings().updating_ttl_ms
        )
        output = _output(rows.schema, changes.schema, own, clause.kind)
        joined = self.steps.joined(kind, rows, changes, names, output, f"{clause.kind.name.lower()} join with versions")
        told = frozenset(name for name in left.windows.columns if name in own[0])
        times = {name: after_us for name, after_us in left.times.items() if name in own[0]}
        return replace(joined, windows=Windows(told, left.windows.width_us), times=times)

    @property
    def _joins(self) -> Joins:
        return Joins(self.analyst, self.steps, self.text, self.settings)

    # What the user wrote ----------------------------------------------------------------------------------------------

    def _check(self, left: Operand, clause: JoinClause) -> None:
        moment = clause.as_of
        assert moment is not None
        span = self.text.span(moment, clause.written)
        if clause.kind not in _GIVEN:
            message = f"a {clause.kind.name} JOIN with versions is not supported: a version alone is of no row's time"
            if clause.kind in (JoinKind.SEMI, JoinKind.ANTI):
                message = f"a {clause.kind.name} JOIN with versions is not supported"
            raise refusal("unsupported", message, span, "write JOIN or LEFT JOIN")
        if left.relation.is_updating:
            message = "rows that can be taken back cannot be joined with versions: what they met is not kept"
            hint = "join the rows with versions first, and aggregate what that gives"
            raise refusal("unsupported", message, span, hint)
        if {TIMESTAMP_COLUMN: 0, **left.times}.get(moment.name) != 0:
            known = sorted(name for name, after_us in left.relation.times.items() if not after_us)
            message = "versions are joined as of the event time of the rows before, which this column is not"
            hint = f"write {known[0]}" if known else "write _timestamp, which is the event time of every row"
            raise refusal("not_event_time", message, span, hint)

    async def _versioned(self, right: Operand, clause: JoinClause) -> tuple[Operand, Versions]:
        """The side with all its versions, and what is known of them."""
        versions = right.relation.versions
        if versions is None and right.relation.is_updating:
            return right, Versions(())
        if versions is None:
            message = "this table has no versions: nothing says which of its rows replace each other"
            hint = (
                "declare its PRIMARY KEY, or keep the newest row of each key: "
                "ROW_NUMBER() OVER (PARTITION BY key ORDER BY event_time DESC) = 1"
            )
            raise refusal("missing_key", message, self.text.span(clause.written.this, clause.written), hint)
        if versions.rows is None:
            return right, versions
        order = {ordered.this.name: ordered.this.name for ordered in versions.order}
        names = MappingProxyType({**right.names, **order})
        return replace(right, relation=await versions.rows(), names=names), versions

    def _matched(self, left: Operand, right: Operand, clause: JoinClause, versions: Versions) -> _Conditions:
        """The conditions by what they say; they must equate the whole key of versions, where it is known."""
        keys = {right.names.get(name, name): name for name in versions.key}
        pairs: dict[str, tuple[exp.Expr, exp.Expr]] = {}
        before, rest = [], []
        for condition in clause.conditions:
            pair = _equated(condition, left, keys) if keys else equality(condition, left, right)
            told = "" if pair is None else spark_sql(pair[1])
            if pair is not None and told not in pairs:
                pairs[told] = pair
            elif clause.kind is JoinKind.INNER and left.has(condition):
                before.append(condition)
            else:
                rest.append(condition)
        missing = [name for spelled, name in keys.items() if spark_sql(column(spelled)) not in pairs]
        if missing or not pairs:
            message = "versions are found by their key, which this condition does not equate"
            if missing:
                whole = f", which is {listed(versions.key)}" if len(versions.key) > 1 else ""
                message = f"versions are found by their key{whole}, and this condition does not equate {missing[0]}"
            table = clause.written.this.alias_or_name
            whole_key = " AND ".join(f"… = {table}.{name}" for name in versions.key)
            hint = f"write ON {whole_key}" if keys else "join by an equality, such as a.id = b.id"
            raise refusal("version_key", message, self.text.span(clause.written.args.get("on"), clause.written), hint)
        return _Conditions(tuple(pairs.values()), tuple(before), tuple(rest))

    # Sides ------------------------------------------------------------------------------------------------------------

    async def _left(self, operand: Operand, keys: Keys, own: Sequence[str], clause: JoinClause) -> Relation:
        """Rows with their keys; those that come behind the watermark of their partition are left out, and counted."""
        conditions = [part.copy() for part in operand.where]
        if clause.kind is JoinKind.INNER:
            conditions += [is_there(exp.Paren(this=key.copy())) for key in keys.values]
        if operand.relation.has_watermark:
            await self._note_late_letters(operand)
            conditions.append(is_on_time(Inherited(None), 0))
        inner = named(operand, (WATERMARK_COLUMN, TIMESTAMP_COLUMN))
        values = [*keys.columns, *(column(name) for name in own), column(TIMESTAMP_COLUMN)]
        return await self._keyed(operand, nested(_selected(values, conditions), inner), keys, own, LEFT)

    async def _note_late_letters(self, operand: Operand) -> None:
        spelled = {name: own for own, name in operand.names.items()}
        where = exp.and_(*(_by_own_names(part, spelled) for part in operand.where)) if operand.where else None
        source = SelectSource(operand.relation, None, ())
        await note_late_letters(source, where, Inherited(None), 0, self.analyst, self.steps)

    async def _right(self, operand: Operand, keys: Keys, own: Sequence[str], versions: Versions) -> Relation:
        """Versions with their keys, which come and, where they are changes, go."""
        came = aliased(spark_sql_cast(exp.Literal.number(1), "TINYINT"), OP_COLUMN)
        operation = column(OP_COLUMN) if operand.relation.is_updating else came
        order = [ordered.this.name for ordered in versions.order]
        values = [*keys.columns, *(column(name) for name in (*own, *order)), operation, column(TIMESTAMP_COLUMN)]
        conditions = [is_there(exp.Paren(this=key.copy())) for key in keys.values]
        rows = nested(_selected(values, conditions), named(operand))
        if operand.relation.is_updating:
            rows = unreplaced([*keys.names, *own, OP_COLUMN, TIMESTAMP_COLUMN], keys.names, rows)
        return await self._keyed(operand, rows, keys, (*own, *order, OP_COLUMN), RIGHT)

    async def _keyed(self, operand: Operand, rows: exp.Select, keys: Keys, own: Sequence[str], side: str) -> Relation:
        """The rows with the hash of their keys."""
        values = [*(column(name) for name in (*keys.names, *own)), aliased(hash_of(keys.names), HASH_COLUMN)]
        select = nested(select_from_input([*values, column(TIMESTAMP_COLUMN)]), rows)
        schema = await self.analyst.schema_of(select, inputs_of(operand.relation.schema))
        return self.steps.keyed(Key(select, None), operand.relation, schema, f"{side} side of a join with versions")


def _equated(condition: exp.Expr, left: Operand, keys: Mapping[str, str]) -> tuple[exp.Expr, exp.Expr] | None:
    """What a column of the key equals, which may be the same for all rows, and the column."""
    if isinstance(condition, exp.EQ):
        for value, key in ((condition.this, condition.expression), (condition.expression, condition.this)):
            if isinstance(key, exp.Column) and len(key.parts) == 1 and key.name in keys and left.has(value):
                return value, key
    return None


def _selected(values: Sequence[exp.Expr], conditions: Sequence[exp.Expr]) -> exp.Select:
    return select_from_input(values, where=exp.and_(*conditions, copy=False) if conditions else None)


def _by_own_names(tree: exp.Expr, spelled: Mapping[str, str]) -> exp.Expr:
    """A condition in the names that the columns of a table have by themselves."""
    copy = tree.copy()
    for found in copy.find_all(exp.Column):
        first = found.parts[0]
        first.set("this", spelled.get(first.name, first.name))
    return copy


def _output(left: pa.Schema, right: pa.Schema, own: Sequence[Sequence[str]], kind: JoinKind) -> pa.Schema:
    found = [right.field(name) for name in own[1]]
    if kind is JoinKind.LEFT:
        found = [field.with_nullable(True) for field in found]
    return pa.schema([*(left.field(name) for name in own[0]), *found, NOT_NULL_TIME])
