"""Queries inside expressions as joins: IN and EXISTS keep rows with a match, a single value is joined to all rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from penstock.common.program import JoinKind
from penstock.compiler.diagnostics import refusal
from penstock.compiler.joins import JoinClause, TableJoin, conjuncts
from penstock.compiler.names import FromTable, Names
from penstock.compiler.positions import Text
from penstock.compiler.relations import Relation, column, identifier

_VALUE: Final = "value"
_WHOLE: Final = ("distinct", "limit", "order", "with_")
"""What makes a query inside another one a unit, which cannot read the rows around it."""


def has_subqueries(select: exp.Select) -> bool:
    """Whether a SELECT has queries inside expressions."""
    parts = [*select.expressions, *filter(None, [select.args.get("where")])]
    return any(isinstance(node, exp.Query | exp.Exists) for part in parts for node in part.walk())


@dataclass(slots=True)
class Subqueries:
    """Takes the queries out of a SELECT's expressions, each as a table to be joined."""

    outer: Names
    text: Text
    table: Callable[[exp.Expr], Awaitable[FromTable]]
    query: Callable[[exp.Expr], Awaitable[Relation]]
    is_grouped: Callable[[exp.Select], bool]
    found: list[TableJoin] = field(default_factory=list)

    async def taken_out(self, select: exp.Select) -> exp.Select:
        """The SELECT without them; what they were is in `found`."""
        plain = select.copy()
        where = plain.args.get("where")
        kept = [] if where is None else [part for part in conjuncts(where.this) if not await self._keeps(part)]
        plain.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
        for part in filter(None, [plain.args.get("where")]):
            await self._values(part, JoinKind.INNER)
        for item in plain.expressions:
            await self._values(item, JoinKind.LEFT)
        return plain

    async def _keeps(self, condition: exp.Expr) -> bool:
        """Joins a condition that is an IN or EXISTS; False for any other."""
        inner, negated = condition, False
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
        match inner:
            case exp.Exists():
                await self._exists(inner.this, kind, inner, ())
            case exp.In() if (query := inner.args.get("query")) is not None:
                await self._in(inner, query, kind)
            case _:
                return False
        return True

    async def _in(self, node: exp.In, query: exp.Expr, kind: JoinKind) -> None:
        select = _unwrapped(query)
        values = select.expressions if isinstance(select, exp.Select) else []
        if len(values) != 1 or isinstance(values[0], exp.Star):
            raise refusal("column_count", "the query after IN has one column", self.text.span(query, node))
        if kind is JoinKind.SEMI:
            await self._exists(select, kind, node, (node.this,))
            return
        await self._not_in(node, select)

    async def _not_in(self, node: exp.In, select: exp.Expr) -> None:
        """Nothing is known not to be in a list with a NULL, and NULL only not to be in an empty one."""
        await self._exists(select, JoinKind.ANTI, node, (node.this,))
        right = self.found[-1].table
        if all(not one.nullable for one in right.relation.columns) and self._is_there(node.this):
            return
        value = right.relation.columns[0].name
        empty = [exp.Is(this=column(value, right.name), expression=exp.Null()), None]
        of_null = exp.Is(this=node.this.copy(), expression=exp.Null())
        for condition, outer in ((empty[0], None), (None, of_null)):
            table = FromTable(f"{right.name}_{len(self.found)}", right.relation)
            parts = [one for one in (outer, _of_table(condition, right.name, table.name)) if one is not None]
            self._join(table, JoinKind.ANTI, parts, node, on_nothing=True)

    def _is_there(self, value: exp.Expr) -> bool:
        """Whether a value is never NULL."""
        if not isinstance(value, exp.Column):
            return isinstance(value, exp.Literal)
        name = value.parts[-1].name
        tables = [table for table in self.outer.tables if value.table in ("", table.name)]
        return all(not table.columns[name].nullable for table in tables if name in table.columns)

    async def _exists(self, query: exp.Expr, kind: JoinKind, node: exp.Expr, values: tuple[exp.Expr, ...]) -> None:
        """Joins the rows of a query for which its conditions hold; `values` are equal to its columns."""
        select = _unwrapped(query)
        name = f"_s{len(self.found)}"
        if not isinstance(select, exp.Select) or self._is_whole(select):
            relation = await self.query(select)
            columns = [column(found.name, name) for found in relation.columns]
            pairs = zip(values, columns, strict=False)
            conditions: list[exp.Expr] = [exp.EQ(this=one.copy(), expression=other) for one, other in pairs]
        else:
            relation, conditions = await self._correlated(select, name, values)
        self._join(FromTable(name, relation), kind, conditions, node, on_nothing=not conditions)

    def _is_whole(self, select: exp.Select) -> bool:
        return any(select.args.get(part) for part in _WHOLE) or self.is_grouped(select)

    def _is_single(self, query: exp.Expr) -> bool:
        """Whether a query gives one row: that of all its rows together."""
        return isinstance(query, exp.Select) and self.is_grouped(query) and not query.args.get("group")

    async def _correlated(
        self, select: exp.Select, name: str, values: tuple[exp.Expr, ...]
    ) -> tuple[Relation, list[exp.Expr]]:
        """The rows of a query without the conditions that read the rows around it, and these conditions."""
        own = await self._names_of(select)
        where = select.args.get("where")
        parts = list(conjuncts(where.this)) if where is not None else []
        outside = [part for part in parts if any(self._is_outer(found, own) for found in part.find_all(exp.Column))]
        equal = [exp.EQ(this=one.copy(), expression=other.copy())
                 for one, other in zip(values, select.expressions, strict=False)]  # fmt: skip
        for found in (one for part in outside for one in part.find_all(exp.Column)):
            if not own.can_resolve(found) and not self.outer.can_resolve(found):
                raise refusal("unknown_column", f"unknown column {found.sql()}", self.text.span(found))
        exported: dict[str, exp.Column] = {}
        conditions = [_exporting(part, own, name, exported) for part in outside]
        for condition, inner in zip(equal, select.expressions, strict=False):
            condition.set("expression", _exporting(_unaliased(inner), own, name, exported))
        plain = select.copy()
        inside = [part.copy() for part in parts if part not in outside]
        plain.set("where", exp.Where(this=exp.and_(*inside, copy=False)) if inside else None)
        items = [exp.Alias(this=found.copy(), alias=identifier(alias)) for alias, found in exported.items()]
        plain.set("expressions", items or [exp.Alias(this=exp.Literal.number(1), alias=identifier(_VALUE))])
        return await self.query(plain), [*equal, *conditions]

    async def _names_of(self, select: exp.Select) -> Names:
        sources = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
        return Names(tuple([await self.table(source) for source in sources]))

    def _is_outer(self, found: exp.Column, own: Names) -> bool:
        return not own.can_resolve(found) and self.outer.can_resolve(found)

    async def _values(self, tree: exp.Expr, kind: JoinKind) -> None:
        """Joins the queries in an expression that stand for one value."""
        for query in list(_outermost(tree)):
            if isinstance(query.parent, exp.In | exp.Exists) or isinstance(query, exp.Exists):
                hint = "use it as a condition of WHERE, alone or with AND"
                raise refusal("unsupported", "IN and EXISTS with a query are conditions", self.text.span(query), hint)
            relation = await self.query(_unwrapped(query))
            name = f"_s{len(self.found)}"
            if len(relation.columns) != 1 or not self._is_single(_unwrapped(query)):
                hint = "let it be one aggregate without GROUP BY, such as (SELECT avg(x) FROM t)"
                raise refusal("unsupported", "a query here must give one value", self.text.span(query), hint)
            self._join(FromTable(name, relation), kind, [], query, on_nothing=True)
            query.replace(column(relation.columns[0].name, name))

    def _join(
        self, table: FromTable, kind: JoinKind, conditions: list[exp.Expr], written: exp.Expr, *, on_nothing: bool
    ) -> None:
        names = self.outer.with_hidden(table)
        resolved = tuple(names.resolved(part, self.text) for part in conditions)
        self.found.append(TableJoin(table, JoinClause(kind, resolved, written, on_nothing)))


def _unwrapped(query: exp.Expr) -> exp.Expr:
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query


def _unaliased(item: exp.Expr) -> exp.Expr:
    inner: exp.Expr = item.this if isinstance(item, exp.Alias) else item
    return inner


def _exporting(tree: exp.Expr, own: Names, name: str, exported: dict[str, exp.Column]) -> exp.Expr:
    """An expression in which columns of the inner query are those that it gives."""
    root = exp.Paren(this=tree.copy())
    for found in list(root.find_all(exp.Column)):
        if own.can_resolve(found):
            alias = next((alias for alias, one in exported.items() if one == found), f"{_VALUE}{len(exported)}")
            exported[alias] = found.copy()
            replaced = column(alias, name)
            replaced.meta.update(found.meta)
            found.replace(replaced)
    result: exp.Expr = root.this
    return result


def _of_table(condition: exp.Expr | None, old: str, new: str) -> exp.Expr | None:
    if condition is None:
        return None
    copy = condition.copy()
    for found in copy.find_all(exp.Column):
        if found.table == old:
            found.set("table", identifier(new))
    return copy


def _outermost(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The queries in an expression, without those inside each other."""
    for node in tree.walk(prune=lambda found: isinstance(found, exp.Query | exp.Exists)):
        if isinstance(node, exp.Query | exp.Exists):
            yield node
