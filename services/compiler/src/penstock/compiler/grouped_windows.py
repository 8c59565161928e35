"""A window in FROM that a query groups by is the window in GROUP BY: panes are merged, and no row is there twice.

`SELECT k, window_end, count(*) FROM hop(t, …) GROUP BY k, window_start, window_end` becomes
`SELECT k, hop(…).end AS window_end, count(*) FROM t GROUP BY k, hop(…)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from penstock.compiler.grouping import is_aggregate
from penstock.compiler.relations import Relation, identifier
from penstock.compiler.window_tables import END, START
from penstock.compiler.windows import is_window
from penstock.spark import FunctionKind

_FIELDS = {START: "start", END: "end"}


def windowed_table(select: exp.Select) -> exp.Table | None:
    """The table that a SELECT groups by windows in FROM, if it does."""
    source = select.args["from_"].this if select.args.get("from_") else None
    if not isinstance(source, exp.Table) or not is_window(source.this) or not select.args.get("group"):
        return None
    if any(select.args.get(name) for name in ("joins", "laterals")) or source.args.get("joins"):
        return None
    table = next(iter(source.this.expressions), None)
    has_names = source.args.get("alias") is not None and source.args["alias"].args.get("columns")
    if not isinstance(table, exp.Column) or table.table or has_names:
        return None
    return exp.Table(this=table.this.copy(), alias=source.args.get("alias"))


def with_grouped_window(
    select: exp.Select, table: exp.Table, rows: Relation, kinds: Mapping[str, FunctionKind]
) -> exp.Select:
    """The SELECT over the table itself, if it uses the window's ends as groups only; else as it is."""
    clause = select.args["group"]
    if rows.is_updating or set(_FIELDS) & set(rows.schema.names):
        return select
    if any(value for name, value in clause.args.items() if name != "expressions"):
        return select
    copy = select.copy()
    ends = _Ends(table.alias_or_name, [*copy.expressions], rows)
    items = copy.args["group"].expressions
    others = [item for item in items if not ends.is_meant_by(item)]
    if len(others) == len(items) or not _are_results(copy, others, ends, kinds):
        return select
    written = select.args["from_"].this.this
    call = exp.Anonymous(this=written.name, expressions=[length.copy() for length in written.expressions[1:]])
    call.meta.update(written.meta)
    copy.args["group"].set("expressions", [*others, call.copy()])
    for item in ends.items:
        _replace(item, ends, call)
    copy.args["from_"].set("this", table)
    return copy


class _Ends:
    """The columns of a window's ends, as a SELECT names them."""

    def __init__(self, table: str, items: Sequence[exp.Expr], rows: Relation) -> None:
        self.items = items
        self._table = table
        self._rows = rows

    def has(self, node: exp.Expr) -> bool:
        """Whether a node is one of them."""
        return isinstance(node, exp.Column) and node.name in _FIELDS and node.table in ("", self._table)

    def is_meant_by(self, item: exp.Expr) -> bool:
        """Whether an item of GROUP BY is one of them: by its name, its place or its name in SELECT."""
        if item.is_int:
            place = int(item.name)
            return 1 <= place <= len(self.items) and self.has(self.items[place - 1].unalias())
        if self.has(item):
            return True
        if not isinstance(item, exp.Column) or item.table or item.name in self._rows.schema.names:
            return False
        return any(self.has(found.unalias()) for found in self.items if found.alias == item.name)


def _are_results(
    select: exp.Select, groups: Sequence[exp.Expr], ends: _Ends, kinds: Mapping[str, FunctionKind]
) -> bool:
    """Whether the ends are mentioned as results alone: in no condition, other group or argument of an aggregate."""
    others = [*groups, *(select.args[name] for name in ("where", "having", "windows") if select.args.get(name))]
    inside = [
        found
        for item in ends.items
        for found in item.find_all(exp.Expr)
        if is_aggregate(found, kinds) or isinstance(found, exp.Window | exp.Star)
    ]
    return not any(
        ends.has(node) or isinstance(node, exp.Window) for tree in (*others, *inside) for node in tree.walk()
    )


def _replace(item: exp.Expr, ends: _Ends, call: exp.Expr) -> None:
    for node in [found for found in item.walk() if ends.has(found)]:
        end = exp.Dot(this=call.copy(), expression=identifier(_FIELDS[node.name]))
        end.meta.update(node.meta)
        is_whole = node is item
        node.replace(exp.Alias(this=end, alias=identifier(node.name)) if is_whole else end)
