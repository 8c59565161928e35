"""A FROM with several tables: names are made plain, and tables joined one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from penstock.common.program import JoinKind
from penstock.compiler.diagnostics import refusal
from penstock.compiler.functions import call
from penstock.compiler.joins import JoinClause, Joins, Operand, TableJoin, conjuncts
from penstock.compiler.lookups import Lookups
from penstock.compiler.names import FromTable, Names, implied_name
from penstock.compiler.positions import Text, extent
from penstock.compiler.relations import Relation, column, identifier
from penstock.compiler.rewrite import to_spark
from penstock.compiler.subqueries import Subqueries, has_subqueries
from penstock.compiler.tables import SelectSource, is_unnest, unnest_of_join
from penstock.compiler.temporal_joins import TemporalJoins
from penstock.compiler.unnests import Unnests

_CLAUSES: Final = ("where", "group", "having")
_KINDS: Final = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("RIGHT", ""): JoinKind.RIGHT,
    ("RIGHT", "OUTER"): JoinKind.RIGHT,
    ("FULL", ""): JoinKind.FULL,
    ("FULL", "OUTER"): JoinKind.FULL,
    ("", "SEMI"): JoinKind.SEMI,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("", "ANTI"): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}
_LEFT_STAYS: Final = frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})
"""Joins that leave out rows of the left side at most, so that a condition on them can be asked before."""


def has_joins(select: exp.Select) -> bool:
    """Whether a SELECT joins tables, as such or by a query in an expression; arrays that are unnested are none."""
    if select.args.get("from_") is None:
        return False
    return any(not is_unnest(join.this) for join in select.args.get("joins") or ()) or has_subqueries(select)


@dataclass(frozen=True, slots=True)
class JoinedTables:
    """Plans a FROM with several tables; `table` gives the rows of one, `query` those of a query in an expression."""

    joins: Joins
    temporal_joins: TemporalJoins
    lookups: Lookups
    unnests: Unnests
    text: Text
    table: Callable[[exp.Expr], Awaitable[FromTable]]
    query: Callable[[exp.Expr], Awaitable[Relation]]
    is_grouped: Callable[[exp.Select], bool]

    async def read(self, select: exp.Select) -> tuple[exp.Select, SelectSource]:
        """The SELECT with plain names, and what it reads."""
        first = await self.table(select.args["from_"].this)
        names = Names((first,))
        joined: list[TableJoin] = []
        for join in select.args.get("joins") or ():
            table = await self._table(join, names)
            as_of = self._moment(join, names)
            names = names.with_table(table, join.this, self.text)
            names, clause = self._clause(names, table, join)
            names = names.after(clause.kind)
            joined.append(TableJoin(table, replace(clause, as_of=as_of)))
        inner = Subqueries(names, self.text, self.table, self.query, self.is_grouped)
        select = await inner.taken_out(select)
        joined += inner.found
        names = names.with_hidden(*(join.table for join in inner.found))
        return await self._read(self._plain(select, names), first, joined)

    async def _table(self, join: exp.Join, names: Names) -> FromTable:
        """A table that is joined with those of some names."""
        if is_unnest(join.this):
            return await self.unnests.table(unnest_of_join(join, self.text), names)
        table = await self.table(_without_version(join.this))
        if table.looked_up is not None:
            self.lookups.check(join, table.looked_up)
        return table

    async def _read(
        self, select: exp.Select, first: FromTable, joined: Sequence[TableJoin]
    ) -> tuple[exp.Select, SelectSource]:
        select, joined = _with_conditions(select, first, joined)
        used = frozenset(_used(select, joined))
        operand, *others = self._operands(select, first, joined, used)
        for place, (right, join) in enumerate(zip(others, joined, strict=True), start=1):
            later = frozenset(_used(select, joined[place:]))
            operand = Operand.of_joined(await self._step(operand, right, join, later))
        return select, SelectSource(operand.relation, None, ())

    async def _step(self, rows: Operand, right: Operand, join: TableJoin, used: frozenset[str]) -> Relation:
        """What was joined so far, with one more table."""
        if join.table.looked_up is not None:
            return await self.lookups.relation(rows, join)
        if join.table.unnested is not None:
            return await self.unnests.relation(rows, join.table.name, join.table.unnested)
        planning = self.joins if join.clause.as_of is None else self.temporal_joins
        return await planning.relation(rows, right, join.clause, used)

    def _operands(
        self, select: exp.Select, first: FromTable, joined: Sequence[TableJoin], used: frozenset[str]
    ) -> Iterator[Operand]:
        """The tables, each with what WHERE asks of its rows alone, where that can be asked before they are joined: the
        SELECT then no longer does."""
        where = select.args.get("where")
        parts = list(conjuncts(where.this)) if where is not None else []
        kinds = [join.clause.kind for join in joined]
        versioned = {join.table.name for join in joined if join.clause.as_of is not None}
        for place, table in enumerate((first, *(join.table for join in joined))):
            stays = all(kind in _LEFT_STAYS for kind in kinds[place:])
            stays &= not place or kinds[place - 1] in (JoinKind.INNER, JoinKind.RIGHT)
            stays &= table.is_read
            stays &= table.name not in versioned  # a version that is left out ends the one before it all the same
            own = [part for part in parts if stays and _tables_of(part) == {table.name} and _is_plain(part)]
            parts = [part for part in parts if part not in own]
            select.set("where", exp.Where(this=exp.and_(*parts, copy=False)) if parts else None)
            yield replace(Operand.of_table(table, used), where=tuple(to_spark(part, self.text) for part in own))

    def _moment(self, join: exp.Join, names: Names) -> exp.Expr | None:
        """The time that FOR SYSTEM_TIME AS OF names, a column of the tables before; None where it is not said."""
        if (version := join.this.args.get("version")) is None:
            return None
        if version.name != "TIMESTAMP" or version.args.get("kind") != "AS OF":
            hint = "write FOR SYSTEM_TIME AS OF and the event time of the rows before"
            raise refusal("unsupported", "versions are asked for as of a time", self.text.span(join.this, join), hint)
        moment = version.expression
        if not isinstance(moment, exp.Column):
            message = "versions are asked for as of the event time of the rows before, and this is an expression"
            raise refusal("not_event_time", message, self.text.span(moment, join.this, join), "name its column alone")
        resolved, place = names.resolved(moment, self.text), extent(moment)
        if place is not None:
            resolved.meta.update(start=place[0], end=place[1])
        return resolved

    def _clause(self, names: Names, table: FromTable, join: exp.Join) -> tuple[Names, JoinClause]:
        kind = _KINDS.get(((join.side or "").upper(), (join.kind or "").upper()))
        if kind is None or join.method:
            what = " ".join(filter(None, [join.method, join.side, join.kind, "JOIN"])).upper()
            raise refusal("unsupported", f"{what} is not supported", self.text.span(join))
        if using := join.args.get("using"):
            return self._using(names, table, kind, using, join)
        condition = join.args.get("on")
        if condition is None or table.unnested is not None:
            return names, JoinClause(kind, (), join)
        resolved = names.resolved(condition, self.text)
        return names, JoinClause(kind, tuple(conjuncts(resolved)), join)

    def _using(
        self, names: Names, table: FromTable, kind: JoinKind, using: Sequence[exp.Expr], join: exp.Join
    ) -> tuple[Names, JoinClause]:
        """Equal columns of one name, which are one from here on."""
        before = replace(names, tables=names.tables[:-1])
        merged, conditions = dict(names.merged), []
        for found in using:
            name = found.name
            if name not in table.columns:
                raise refusal("unknown_column", f"{table.name} has no column {name}", self.text.span(found, join))
            plain = exp.Column(this=identifier(name))
            if not before.can_resolve(plain):
                message = f"no table before {table.name} has a column {name}"
                raise refusal("unknown_column", message, self.text.span(found, join))
            left = before.resolved(plain, self.text)
            right = column(table.spelled(name))
            conditions.append(exp.EQ(this=left.copy(), expression=right.copy()))
            merged[name] = {
                JoinKind.RIGHT: right,
                JoinKind.FULL: call("coalesce", left.copy(), right.copy()),
            }.get(kind, left)
        return replace(names, merged=MappingProxyType(merged)), JoinClause(kind, tuple(conditions), join)

    def _plain(self, select: exp.Select, names: Names) -> exp.Select:
        """The SELECT without its FROM, in which each column has the name that it has where the tables are joined."""
        plain = select.copy()
        plain.set("joins", None)
        expressions = [one for item in plain.expressions for one in names.expanded(item, self.text)]
        plain.set("expressions", [_resolved_item(item, names, self.text) for item in expressions])
        for part in _CLAUSES:
            if (found := plain.args.get(part)) is not None:
                plain.set(part, names.resolved(found, self.text))
        if windows := plain.args.get("windows"):
            plain.set("windows", [names.resolved(found, self.text) for found in windows])
        return plain


def _resolved_item(item: exp.Expr, names: Names, text: Text) -> exp.Expr:
    """An item of a SELECT list, which keeps the name that it would have had."""
    resolved = names.resolved(item, text)
    name = implied_name(item) if isinstance(item, exp.Column | exp.Dot) else None
    return resolved if name is None else exp.Alias(this=resolved, alias=identifier(name))


def _with_conditions(
    select: exp.Select, first: FromTable, joined: Sequence[TableJoin]
) -> tuple[exp.Select, list[TableJoin]]:
    """Tables that are only listed in FROM are joined by what WHERE says about them; others also by what it says about
    them and tables before them, unless a later join is RIGHT or FULL: it would give rows whose match was left out."""
    where = select.args.get("where")
    left = list(conjuncts(where.this)) if where is not None else []
    seen, result = {first.name}, []
    for place, join in enumerate(joined, start=1):
        seen.add(join.table.name)
        clause = join.clause
        stays = all(later.clause.kind in _LEFT_STAYS for later in joined[place:])
        if clause.kind is JoinKind.INNER and join.table.unnested is None and (stays or not clause.conditions):
            here = [part for part in left if _joins(part, join.table.name, seen, alone=not clause.conditions)]
            left = [part for part in left if part not in here]
            join = replace(join, clause=replace(clause, conditions=(*clause.conditions, *here)))
        result.append(join)
    select.set("where", exp.Where(this=exp.and_(*left, copy=False)) if left else None)
    return select, result


def _joins(part: exp.Expr, table: str, seen: set[str], *, alone: bool) -> bool:
    """Whether a condition is of a table and of those before it; `alone`: or of the table and no other."""
    tables = _tables_of(part)
    return table in tables and tables <= seen and (alone or (len(tables) > 1 and _is_plain(part)))


def _is_plain(tree: exp.Expr) -> bool:
    return not any(isinstance(node, exp.Query | exp.Window | exp.Rand) for node in tree.walk())


def _tables_of(tree: exp.Expr) -> set[str]:
    """The tables whose columns an expression reads."""
    return {found.parts[0].name.partition(".")[0] for found in tree.find_all(exp.Column)}


def _without_version(table: exp.Expr) -> exp.Expr:
    if table.args.get("version") is None:
        return table
    plain = table.copy()
    plain.set("version", None)
    return plain


def _used(select: exp.Select, joined: Sequence[TableJoin]) -> Iterator[str]:
    """The names of all columns that somebody reads, and perhaps a few more."""
    moments = [join.clause.as_of for join in joined if join.clause.as_of is not None]
    arrays = [join.table.unnested for join in joined if join.table.unnested is not None]
    for tree in [select, *moments, *arrays, *(part for join in joined for part in join.clause.conditions)]:
        for found in tree.find_all(exp.Column):
            yield found.parts[0].name
