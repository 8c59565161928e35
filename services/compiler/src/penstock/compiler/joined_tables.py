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
from penstock.compiler.names import FromTable, Names, implied_name
from penstock.compiler.positions import Text
from penstock.compiler.relations import Relation, column, identifier
from penstock.compiler.rewrite import to_spark
from penstock.compiler.subqueries import Subqueries, has_subqueries
from penstock.compiler.tables import SelectSource, is_unnest, unnest_of_join

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
    text: Text
    table: Callable[[exp.Expr], Awaitable[FromTable]]
    query: Callable[[exp.Expr], Awaitable[Relation]]
    is_grouped: Callable[[exp.Select], bool]

    async def read(self, select: exp.Select) -> tuple[exp.Select, SelectSource]:
        """The SELECT with plain names, and what it reads."""
        first = await self.table(select.args["from_"].this)
        names = Names((first,))
        joined: list[TableJoin] = []
        laterals: list[exp.Lateral] = []
        for join in select.args.get("joins") or ():
            if is_unnest(join.this):
                laterals.append(unnest_of_join(join, self.text))
                continue
            table = await self.table(join.this)
            names = names.with_table(table, join.this, self.text)
            names, clause = self._clause(names, table, join)
            joined.append(TableJoin(table, clause))
        inner = Subqueries(names, self.text, self.table, self.query, self.is_grouped)
        select = await inner.taken_out(select)
        joined += inner.found
        names = names.with_hidden(*(join.table for join in inner.found))
        select = self._plain(select, names)
        laterals = [_resolved_lateral(lateral, names, self.text) for lateral in laterals]
        return await self._read(select, first, joined, laterals)

    async def _read(
        self, select: exp.Select, first: FromTable, joined: Sequence[TableJoin], laterals: Sequence[exp.Lateral]
    ) -> tuple[exp.Select, SelectSource]:
        select, joined = _with_conditions(select, first, joined)
        used = frozenset(_used([select, *laterals], joined))
        operand, *others = self._operands(select, first, joined, used)
        for place, (right, join) in enumerate(zip(others, joined, strict=True), start=1):
            later = frozenset(_used([select, *laterals], joined[place:]))
            relation = await self.joins.relation(operand, right, join.clause, later)
            operand = Operand.of_joined(relation)
        return select, SelectSource(operand.relation, None, tuple(laterals))

    def _operands(
        self, select: exp.Select, first: FromTable, joined: Sequence[TableJoin], used: frozenset[str]
    ) -> Iterator[Operand]:
        """The tables, each with what WHERE asks of its rows alone, where that can be asked before they are joined: the
        SELECT then no longer does."""
        where = select.args.get("where")
        parts = list(conjuncts(where.this)) if where is not None else []
        kinds = [join.clause.kind for join in joined]
        for place, table in enumerate((first, *(join.table for join in joined))):
            stays = all(kind in _LEFT_STAYS for kind in kinds[place:])
            stays &= not place or kinds[place - 1] in (JoinKind.INNER, JoinKind.RIGHT)
            own = [part for part in parts if stays and _tables_of(part) == {table.name} and _is_plain(part)]
            parts = [part for part in parts if part not in own]
            select.set("where", exp.Where(this=exp.and_(*parts, copy=False)) if parts else None)
            yield replace(Operand.of_table(table, used), where=tuple(to_spark(part, self.text) for part in own))

    def _clause(self, names: Names, table: FromTable, join: exp.Join) -> tuple[Names, JoinClause]:
        kind = _KINDS.get(((join.side or "").upper(), (join.kind or "").upper()))
        if kind is None or join.method:
            what = " ".join(filter(None, [join.method, join.side, join.kind, "JOIN"])).upper()
            raise refusal("unsupported", f"{what} is not supported", self.text.span(join))
        if using := join.args.get("using"):
            return self._using(names, table, kind, using, join)
        condition = join.args.get("on")
        if condition is None:
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
        return plain


def _resolved_item(item: exp.Expr, names: Names, text: Text) -> exp.Expr:
    """An item of a SELECT list, which keeps the name that it would have had."""
    resolved = names.resolved(item, text)
    name = implied_name(item) if isinstance(item, exp.Column | exp.Dot) else None
    return resolved if name is None else exp.Alias(this=resolved, alias=identifier(name))


def _resolved_lateral(lateral: exp.Lateral, names: Names, text: Text) -> exp.Lateral:
    copy = lateral.copy()
    copy.set("this", names.resolved(lateral.this, text))
    return copy


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
        if clause.kind is JoinKind.INNER and (stays or not clause.conditions):
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


def _used(trees: Sequence[exp.Expr], joined: Sequence[TableJoin]) -> Iterator[str]:
    """The names of all columns that somebody reads, and perhaps a few more."""
    for tree in [*trees, *(part for join in joined for part in join.clause.conditions)]:
        for found in tree.find_all(exp.Column):
            yield found.parts[0].name
