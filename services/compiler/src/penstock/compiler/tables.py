"""What a SELECT reads: one relation under a name, and the arrays that are unnested beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyarrow import types as arrow
from sqlglot import exp

from penstock.compiler.diagnostics import did_you_mean, refusal
from penstock.compiler.functions import call
from penstock.compiler.positions import Text
from penstock.compiler.relations import Relation, column, identifier

_NO_ALIAS: Final = "unnest"


@dataclass(frozen=True, slots=True)
class SelectSource:
    """The relation, the name by which columns are qualified, and `LATERAL VIEW`s."""

    relation: Relation
    name: str | None
    laterals: tuple[exp.Lateral, ...]

    @property
    def alias(self) -> exp.TableAlias | None:
        if self.name is None:
            return None
        return exp.TableAlias(this=identifier(self.name))

    def own_name(self, value: exp.Expr) -> str | None:
        """The name of a column of the relation; None for any other value."""
        if not isinstance(value, exp.Column) or value.table not in ("", self.name) or value.args.get("db"):
            return None
        return str(value.name)

    def expanded(self, item: exp.Expr, text: Text) -> Iterator[exp.Expr]:
        """An item of a SELECT list, with a star as the columns that it stands for."""
        if isinstance(item, exp.Star):
            yield from self._starred(item, [*self._own(), *self._unnested()], text)
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            yield from self._starred(item.this, list(self._qualified(item, text)), text)
        elif isinstance(item, exp.Dot) and isinstance(item.expression, exp.Star):
            raise refusal("unsupported", "a star can follow the name of a table or a column only", text.span(item))
        else:
            yield item

    def _own(self) -> Iterator[exp.Column]:
        return (column(field.name, self.name) for field in self.relation.columns)

    def _unnested(self, table: str | None = None) -> Iterator[exp.Column]:
        for lateral in self.laterals:
            alias = lateral.args["alias"]
            if table is None or alias.name == table:
                yield from (column(found.name, alias.name) for found in alias.args["columns"])

    def _qualified(self, item: exp.Column, text: Text) -> Iterator[exp.Expr]:
        table = item.table
        if item.args.get("db"):
            raise refusal("unsupported", "a star can follow the name of a table or a column only", text.span(item))
        if table == self.name:
            yield from self._own()
        elif unnested := list(self._unnested(table)):
            yield from unnested
        else:
            yield from self._fields(table, item, text)

    def _fields(self, name: str, item: exp.Column, text: Text) -> Iterator[exp.Expr]:
        kinds = {field.name: field.type for field in self.relation.columns}
        kind = kinds.get(name)
        if kind is None or not arrow.is_struct(kind):
            known = [*filter(None, [self.name]), *(key for key, found in kinds.items() if arrow.is_struct(found))]
            hint = did_you_mean(name, known)
            raise refusal("unknown_column", f"there is no table and no struct {name}", text.span(item), hint)
        for field in kind:
            yield column(field.name, name)

    def _starred(self, star: exp.Star, columns: list[exp.Expr], text: Text) -> Iterator[exp.Expr]:
        left_out = {found.name for found in star.args.get("except_") or ()}
        replaced = {found.alias: found for found in star.args.get("replace") or ()}
        if star.args.get("rename"):
            raise refusal("unsupported", "RENAME is not supported", text.span(star))
        known = {found.name for found in columns}
        for name in sorted((left_out | replaced.keys()) - known):
            raise refusal("unknown_column", f"unknown column {name}", text.span(star), did_you_mean(name, known))
        for found in columns:
            if found.name not in left_out:
                yield replaced.get(found.name, found)


def select_source(select: exp.Select, source: exp.Expr, relation: Relation, text: Text) -> SelectSource:
    """What a SELECT over one relation reads."""
    alias = source.args.get("alias")
    given = alias.name if alias is not None and alias.this is not None else None
    name = given or (source.name if isinstance(source, exp.Table) else None) or None
    joins = [*(select.args.get("joins") or []), *(source.args.get("joins") or [])]
    laterals = [unnest_of_join(join, text) for join in joins]
    laterals += [_unnest(lateral, False, text) for lateral in select.args.get("laterals") or []]
    return SelectSource(relation, name, tuple(laterals))


def is_unnest(node: exp.Expr) -> bool:
    """Whether what is joined is an array that is unnested."""
    return _unnested_call(node) is not None


def unnest_of_join(join: exp.Join, text: Text) -> exp.Lateral:
    """An array that is unnested beside the row that holds it."""
    if not is_unnest(join.this):
        raise refusal("unsupported", "a join inside parentheses is not supported", text.span(join))
    condition = join.args.get("on")
    if (condition is not None and condition != exp.true()) or join.side in ("RIGHT", "FULL") or join.args.get("using"):
        hint = "write CROSS JOIN UNNEST(…), or LEFT JOIN UNNEST(…) ON true"
        raise refusal("unsupported", "UNNEST is joined without a condition", text.span(join), hint)
    return _unnest(join.this, join.side == "LEFT", text)


def _unnested_call(node: exp.Expr) -> exp.Unnest | None:
    inner = node.this if isinstance(node, exp.Lateral) else node
    return inner if isinstance(inner, exp.Unnest) else None


def _unnest(node: exp.Expr, outer: bool, text: Text) -> exp.Lateral:
    """The rows of an array beside the row that holds it, as Spark's LATERAL VIEW."""
    unnest = _unnested_call(node)
    if unnest is None or len(unnest.expressions) != 1 or unnest.args.get("offset"):
        hint = "write UNNEST(array) AS t(c)"
        raise refusal("unsupported", "only UNNEST of one array is supported here", text.span(node), hint)
    alias = node.args.get("alias") or unnest.args.get("alias")
    table = alias.name if alias is not None and alias.this is not None else _NO_ALIAS
    columns = [found.name for found in (alias.args.get("columns") or [])] if alias is not None else []
    if len(columns) > 1:
        hint = "the elements of an array of structs are one column, whose fields are t.c.field"
        raise refusal("column_count", "UNNEST of an array gives one column", text.span(alias), hint)
    return exp.Lateral(
        this=call("explode", unnest.expressions[0].copy()),
        view=True,
        outer=outer,
        alias=exp.TableAlias(this=identifier(table), columns=[identifier(name) for name in columns or [table]]),
    )
