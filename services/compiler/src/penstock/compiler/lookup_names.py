"""The names of columns where rows stand beside looked-up ones: `alias.column` inside, whatever the user writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.compiler.diagnostics import Refused, did_you_mean, listed, refusal
from penstock.compiler.positions import Text, extent
from penstock.compiler.relations import HIDDEN, column, identifier

_STRICT: Final = ("where", "having", "windows")
_LENIENT: Final = ("group",)
"""Where a name can also be that of a result."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the tables: its name, if it has one, and its columns."""

    name: str | None
    columns: pa.Schema

    def inner(self, name: str) -> str:
        """What one of its columns is called inside."""
        return name if self.name is None else f"{self.name}.{name}"


@dataclass(frozen=True, slots=True)
class Names:
    """The columns of tables side by side."""

    sides: tuple[Side, ...]
    text: Text

    def with_side(self, side: Side) -> Names:
        return Names((*self.sides, side), self.text)

    def resolved(self, tree: exp.Expr, *, lenient: bool = False) -> exp.Expr:
        """A copy of a tree with columns by their names inside; one that is unknown is refused, or left as it is."""
        root = exp.Paren(this=tree.copy())
        for found in list(root.find_all(exp.Column)):
            if isinstance(found.this, exp.Star):
                continue
            if (known := self._known(found)) is not None:
                found.replace(known)
            elif not lenient:
                raise self._unknown(found)
        result: exp.Expr = root.this
        root.set("this", None)
        return result

    def _known(self, found: exp.Column) -> exp.Expr | None:
        parts = [part.name for part in found.parts]
        side = self._side(parts[0]) if len(parts) > 1 else None
        if side is not None and parts[1] in side.columns.names:
            return _path(side.inner(parts[1]), parts[2:], found)
        if side is not None and parts[1] in HIDDEN:
            return _path(parts[1], parts[2:], found)
        owners = [side for side in self.sides if parts[0] in side.columns.names]
        if len(owners) > 1:
            message = f"column {parts[0]} could be one of several"
            raise refusal("ambiguous_column", message, self.text.span(found), "write the table before it")
        if owners:
            return _path(owners[0].inner(parts[0]), parts[1:], found)
        return found if len(parts) == 1 and parts[0] in HIDDEN else None

    def _side(self, name: str) -> Side | None:
        return next((side for side in self.sides if side.name == name), None)

    def _unknown(self, found: exp.Column) -> Refused:
        parts = [part.name for part in found.parts]
        side = self._side(parts[0]) if len(parts) > 1 else None
        known = [name for one in ((side,) if side is not None else self.sides) for name in one.columns.names]
        wanted = parts[1] if side is not None else parts[0]
        hint = did_you_mean(wanted, known) or f"the columns are {listed(known)}"
        return refusal("unknown_column", f"unknown column {'.'.join(parts)}", self.text.span(found), hint)

    # SELECT -----------------------------------------------------------------------------------------------------------

    def select(self, select: exp.Select) -> exp.Select:
        """The SELECT by the names inside, without its joins; its results keep the names that the user sees."""
        result = select.copy()
        result.set("joins", None)
        result.set("expressions", [found for item in select.expressions for found in self._items(item, select)])
        for part in (*_STRICT, *_LENIENT):
            clause = result.args.get(part)
            if isinstance(clause, list):
                result.set(part, [self.resolved(one) for one in clause])
            elif clause is not None:
                result.set(part, self.resolved(clause, lenient=part in _LENIENT))
        return result

    def _items(self, item: exp.Expr, select: exp.Select) -> Iterator[exp.Expr]:
        place = extent(item) or extent(select)
        if isinstance(item, exp.Star):
            columns = [found for side in self.sides for found in _all_of(side)]
            yield from (_placed(found, place) for found in self._starred(item, columns))
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            yield from (_placed(found, place) for found in self._starred(item.this, self._qualified(item)))
        elif isinstance(item, exp.Alias):
            yield self.resolved(item)
        else:
            resolved = self.resolved(item)
            name = _name_of(item)
            yield resolved if name is None else exp.Alias(this=resolved, alias=identifier(name))

    def _qualified(self, item: exp.Column) -> list[tuple[str, exp.Expr]]:
        """What `u.*` stands for: the columns of a table, or the fields of a struct."""
        if (side := self._side(item.table)) is not None and not item.args.get("db"):
            return _all_of(side)
        owners = [side for side in self.sides if item.table in side.columns.names]
        kind = owners[0].columns.field(item.table).type if len(owners) == 1 else None
        if kind is None or not arrow.is_struct(kind) or item.args.get("db"):
            known = [side.name for side in self.sides if side.name is not None]
            message = f"there is no table and no struct {item.table}"
            raise refusal("unknown_column", message, self.text.span(item), did_you_mean(item.table, known))
        inner = owners[0].inner(item.table)
        return [(field.name, _path(inner, [field.name], item)) for field in kind]

    def _starred(self, star: exp.Star, columns: list[tuple[str, exp.Expr]]) -> Iterator[exp.Expr]:
        left_out = {found.name for found in star.args.get("except_") or ()}
        replaced = {found.alias: found for found in star.args.get("replace") or ()}
        if star.args.get("rename"):
            raise refusal("unsupported", "RENAME is not supported", self.text.span(star))
        known = [name for name, _ in columns]
        for name in sorted((left_out | replaced.keys()) - set(known)):
            raise refusal("unknown_column", f"unknown column {name}", self.text.span(star), did_you_mean(name, known))
        for name, value in columns:
            if name in replaced:
                yield self.resolved(replaced[name])
            elif name not in left_out:
                yield exp.Alias(this=value, alias=identifier(name))


def _all_of(side: Side) -> list[tuple[str, exp.Expr]]:
    return [(name, column(side.inner(name))) for name in side.columns.names]


def _path(name: str, fields: list[str], original: exp.Column) -> exp.Expr:
    """A column, or a field in it, at the place of another."""
    value: exp.Expr = column(name)
    for field in fields:
        value = exp.Dot(this=value, expression=identifier(field))
    return _placed(value, extent(original))


def _placed(value: exp.Expr, place: tuple[int, int] | None) -> exp.Expr:
    if place is not None:
        value.meta.update(start=place[0], end=place[1])
    return value


def _name_of(item: exp.Expr) -> str | None:
    """The name that a value has from its column, which is called otherwise inside."""
    match item:
        case exp.Column():
            return item.name
        case exp.Dot():
            return str(item.expression.name)
        case exp.Cast() | exp.Paren() | exp.Bracket():
            return _name_of(item.this)
    return None
