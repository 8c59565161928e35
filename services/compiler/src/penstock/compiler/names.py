"""The names of several tables in FROM: which column of which table an expression means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import JoinKind
from penstock.compiler.catalog import ConnectorTable
from penstock.compiler.diagnostics import did_you_mean, refusal
from penstock.compiler.functions import WRITTEN
from penstock.compiler.positions import Text, extent
from penstock.compiler.relations import Relation, column, identifier
from penstock.connectors.base import TIMESTAMP_COLUMN


@dataclass(frozen=True, slots=True)
class FromTable:
    """A table or query in FROM, and the name by which its columns are qualified, if it has one."""

    name: str
    relation: Relation
    looked_up: ConnectorTable | None = None
    """The lookup table that it is: the relation is then only what its columns are."""
    unnested: exp.Lateral | None = None
    """The array whose elements it is, of the tables before it; likewise."""

    @property
    def is_read(self) -> bool:
        """Whether it has rows of its own, whatever it is joined with."""
        return self.looked_up is None and self.unnested is None

    @property
    def columns(self) -> Mapping[str, pa.Field]:
        return MappingProxyType({found.name: found for found in self.relation.columns})

    def spelled(self, name: str) -> str:
        """What one of its columns is called where the tables are joined."""
        return f"{self.name}.{name}"

    def padded(self) -> FromTable:
        """The same where its rows may be missing."""
        fields = [found.with_nullable(True) for found in self.relation.columns]
        return replace(self, relation=replace(self.relation, schema=pa.schema([*fields, *self.relation.hidden])))


@dataclass(frozen=True, slots=True)
class Names:
    """The tables that are joined, and the columns that USING made one."""

    tables: tuple[FromTable, ...]
    merged: Mapping[str, exp.Expr] = field(default_factory=lambda: MappingProxyType({}))
    hidden: tuple[FromTable, ...] = ()
    """Tables that the user did not name: their columns are found by qualified names only."""

    def with_table(self, table: FromTable, span_of: exp.Expr, text: Text) -> Names:
        """These and one more."""
        if any(table.name == other.name for other in self.tables):
            hint = "give one of them another name with AS"
            raise refusal("duplicate", f"{table.name} is twice in FROM", text.span(span_of), hint)
        return replace(self, tables=(*self.tables, table))

    def after(self, kind: JoinKind) -> Names:
        """These when the last one is joined: rows of a side that such a join may miss are padded with NULLs."""
        *before, last = self.tables
        if kind in (JoinKind.LEFT, JoinKind.FULL):
            last = last.padded()
        if kind in (JoinKind.RIGHT, JoinKind.FULL):
            before = [table.padded() for table in before]
        return replace(self, tables=(*before, last))

    def with_hidden(self, *tables: FromTable) -> Names:
        """These and some that are found by qualified names only."""
        return replace(self, hidden=(*self.hidden, *tables))

    def resolved(self, tree: exp.Expr, text: Text) -> exp.Expr:
        """A copy of an expression in which each column has the name that it has where the tables are joined."""
        root = exp.Paren(this=tree.copy())
        for found in list(root.find_all(exp.Column)):
            if not isinstance(found.this, exp.Star) and not _is_inside_query(found, root):
                found.replace(self._resolved_column(found, text))
        result: exp.Expr = root.this
        return result

    def can_resolve(self, found: exp.Column) -> bool:
        """Whether a column is of one of the tables."""
        first, *rest = [part.name for part in found.parts]
        table = self._table(first)
        if table is not None and rest and _has(table, rest[0]):
            return True
        return first in self.merged or any(first in table.columns for table in self.tables)

    def expanded(self, item: exp.Expr, text: Text) -> Iterator[exp.Expr]:
        """An item of a SELECT list, with a star as the columns that it stands for, each under its own name."""
        if isinstance(item, exp.Star):
            starred = _starred(item, [*self._merged_columns(), *self._all_columns()], text)
            yield from (_placed(found, item) for found in starred)
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            starred = _starred(item.this, list(self._qualified(item, text)), text)
            yield from (_placed(found, item) for found in starred)
        else:
            yield item

    def _resolved_column(self, found: exp.Column, text: Text) -> exp.Expr:
        parts = found.parts
        first, rest = parts[0].name, parts[1:]
        table = self._table(first)
        if table is not None and rest and _has(table, rest[0].name):
            return _renamed(found, table.spelled(rest[0].name), rest[1:])
        if first in self.merged and not rest:
            return self.merged[first].copy()
        owners = [table for table in self.tables if first in table.columns]
        if len(owners) > 1:
            tables = " and ".join(owner.name for owner in owners)
            hint = f"write {owners[0].name}.{first} or {owners[1].name}.{first}"
            raise refusal("ambiguous_column", f"column {first} is in {tables}", text.span(found), hint)
        if owners:
            return _renamed(found, owners[0].spelled(first), rest)
        if table is not None and rest:
            known = did_you_mean(rest[0].name, table.columns)
            raise refusal("unknown_column", f"unknown column {first}.{rest[0].name}", text.span(found), known)
        return found

    def _table(self, name: str) -> FromTable | None:
        return next((table for table in (*self.tables, *self.hidden) if table.name == name), None)

    def _merged_columns(self) -> Iterator[exp.Expr]:
        for name, value in self.merged.items():
            yield exp.Alias(this=value.copy(), alias=identifier(name))

    def _all_columns(self) -> Iterator[exp.Expr]:
        for table in self.tables:
            yield from self._columns_of(table, without=self.merged)

    def _columns_of(self, table: FromTable, without: Mapping[str, exp.Expr]) -> Iterator[exp.Expr]:
        for name in table.columns:
            if name not in without:
                yield exp.Alias(this=column(name, table.name), alias=identifier(name))

    def _qualified(self, item: exp.Column, text: Text) -> Iterator[exp.Expr]:
        table = self._table(item.table)
        if table is not None and table not in self.hidden:
            yield from self._columns_of(table, without={})
            return
        structs = [
            (owner, found) for owner in self.tables for found in owner.relation.columns
            if found.name == item.table and arrow.is_struct(found.type)
        ]  # fmt: skip
        if len(structs) != 1:
            hint = did_you_mean(item.table, [table.name for table in self.tables])
            raise refusal("unknown_column", f"there is no table and no struct {item.table}", text.span(item), hint)
        owner, struct = structs[0]
        for inner in struct.type:
            value = exp.Column(this=identifier(inner.name), table=identifier(struct.name), db=identifier(owner.name))
            yield exp.Alias(this=value, alias=identifier(inner.name))


def _has(table: FromTable, name: str) -> bool:
    return name in table.columns or (name == TIMESTAMP_COLUMN and name in table.relation.schema.names)


def _renamed(found: exp.Column, name: str, rest: Sequence[exp.Expr]) -> exp.Column:
    """The same node, which knows its place, under another name; what is left of its parts are fields of a struct."""
    place = extent(found)
    parts = [identifier(name), *(identifier(part.name) for part in rest)]
    for key, part in zip(("this", "table", "db", "catalog"), [*reversed(parts), None, None, None, None], strict=False):
        found.set(key, part)
    if place is not None:
        found.meta.update(start=place[0], end=place[1])
    return found


def _placed(found: exp.Expr, item: exp.Expr) -> exp.Expr:
    """A column that a star stands for, at the place of the star."""
    if "start" not in found.meta and (place := extent(item)) is not None:
        found.meta.update(start=place[0], end=place[1])
    return found


def _is_inside_query(found: exp.Expr, root: exp.Expr) -> bool:
    inner = found.find_ancestor(exp.Query)
    return inner is not None and inner is not root


def _starred(star: exp.Star, columns: list[exp.Expr], text: Text) -> Iterator[exp.Expr]:
    left_out = {found.name for found in star.args.get("except_") or ()}
    replaced = {found.alias: found for found in star.args.get("replace") or ()}
    known = {found.alias for found in columns}
    if star.args.get("rename"):
        raise refusal("unsupported", "RENAME is not supported", text.span(star))
    for name in sorted((left_out | replaced.keys()) - known):
        raise refusal("unknown_column", f"unknown column {name}", text.span(star), did_you_mean(name, known))
    yield from (replaced.get(found.alias, found) for found in columns if found.alias not in left_out)


def implied_name(value: exp.Expr) -> str | None:
    """The name of a column that has none, as Postgres has it."""
    match value:
        case exp.Column():
            return value.name
        case exp.Dot():
            return str(value.expression.name)
        case exp.Cast() | exp.Paren():
            return implied_name(value.this)
        case exp.Anonymous():
            return str(value.meta.get(WRITTEN, value.name)).lower()
        case exp.Case() | exp.If():
            return "case"
        case exp.Bracket():
            return implied_name(value.this)
        case exp.Func() if not isinstance(value, exp.Binary):
            return str(value.sql_name()).lower()
    return None
