"""Functions with OVER: over the rows of a window, when it is complete, or over all rows of a key so far, as changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from penstock.common.program import HASH_COLUMN, OP_COLUMN, StageQuery, UpdatingAggregate, WindowFunction
from penstock.compiler.aggregates import with_op
from penstock.compiler.analysis import inputs_of
from penstock.compiler.changes import counted, first_rows, hash_of, kept_rows, spread
from penstock.compiler.diagnostics import refusal
from penstock.compiler.dialect import spark_sql
from penstock.compiler.functions import call
from penstock.compiler.plan import Key, nested
from penstock.compiler.planning import Planning
from penstock.compiler.positions import Text
from penstock.compiler.relations import (
    Ranking,
    Relation,
    Windows,
    aliased,
    column,
    identifier,
    select_from_input,
)
from penstock.compiler.tables import SelectSource
from penstock.compiler.types import spark_sql_cast
from penstock.compiler.versions import newest
from penstock.connectors.base import TIMESTAMP_COLUMN

_EVERYTHING: Final = "_p"
_TIE: Final = "_tie"
"""Of a row: the hash of its columns, by which rows of one place follow each other."""
# Which of several equal rows these see first is nobody's wish, but must be the same whenever it is asked again.
_ORDERED: Final = frozenset(
    {"row_number", "lag", "lead", "ntile", "first_value", "last_value", "nth_value", "first", "last", "any_value"}
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A SELECT with OVER: what it reads, which rows of it, and its columns in Spark's terms."""

    source: SelectSource
    where: exp.Expr | None
    projections: Sequence[tuple[str, exp.Expr]]
    select: exp.Select
    """As the user wrote it, for its place."""


def has_over(values: Sequence[exp.Expr]) -> bool:
    """Whether a function of these has OVER."""
    return any(True for value in values for _ in value.find_all(exp.Window))


def with_named_windows(select: exp.Select, text: Text) -> exp.Select:
    """The SELECT with what its WINDOW clause says where it is used."""
    definitions = {found.name: found for found in select.args.get("windows") or ()}
    copy = select.copy()
    copy.set("windows", None)
    for found in list(copy.find_all(exp.Window)):
        name = found.args.get("alias")
        if name is None:
            continue
        definition = definitions.get(name.name)
        if definition is None:
            raise refusal("unknown_window", f"there is no window {name.name}", text.span(name, found))
        for part in ("partition_by", "order", "spec"):
            inherited = definition.args.get(part)
            if inherited and not found.args.get(part):
                copied = [one.copy() for one in inherited] if isinstance(inherited, list) else inherited.copy()
                found.set(part, copied)
        found.set("alias", None)
    return copy


@dataclass(frozen=True, slots=True)
class Overs(Planning):
    """Plans functions with OVER."""

    async def relation(self, ranked: Ranked) -> Relation:
        """The rows of a SELECT with OVER."""
        source = ranked.source
        if source.laterals:
            hint = "put UNNEST into a query in FROM"
            raise refusal("unsupported", "UNNEST beside OVER is not supported", self.text.span(ranked.select), hint)
        overs = [found for _, tree in ranked.projections for found in tree.find_all(exp.Window)]
        keys = list(_common_keys(overs))
        windows = source.relation.windows
        is_windowed = not source.relation.is_updating and all(
            any(windows.told_by(key, source.name) for key in over.args.get("partition_by") or ()) for over in overs
        )
        if is_windowed:
            return await self._of_windows(ranked, keys)
        relation = await self._of_all_rows(ranked, keys)
        return replace(relation, ranking=self._ranking(ranked, keys))

    def _ranking(self, ranked: Ranked, keys: list[exp.Expr]) -> Ranking | None:
        """Rows that are only numbered need not be kept beyond the number that is asked for, if none is taken back."""
        numbered = [(name, tree) for name, tree in ranked.projections if any(True for _ in tree.find_all(exp.Window))]
        name, over = numbered[0]
        is_number = isinstance(over, exp.Window) and over.this.name.lower() == "row_number"
        if ranked.source.relation.is_updating or len(numbered) > 1 or not is_number:
            return None
        versions = newest(ranked.source, ranked.where, ranked.projections, name, self.analyst, self.steps)
        return Ranking(name, lambda limit: self._of_all_rows(ranked, keys, (over, limit)), versions)

    async def _of_windows(self, ranked: Ranked, keys: list[exp.Expr]) -> Relation:
        source = ranked.source
        names = [f"_p{number}" for number in range(len(keys))]
        values = [aliased(key.copy(), name) for name, key in zip(names, keys, strict=True)]
        own = [column(field.name, source.name) for field in source.relation.columns]
        time = column(TIMESTAMP_COLUMN, source.name)
        select = select_from_input([*own, *values, time], alias=source.alias, where=ranked.where)
        schema = await self.analyst.schema_of(select, inputs_of(source.relation.schema))
        rows = self.steps.keyed(Key(select, None), source.relation, schema, "rows of windows")
        query = select_from_input([*_values(ranked), time.copy()], alias=source.alias)
        output = await self.analyst.schema_of(query, inputs_of(schema))
        kind = WindowFunction(spark_sql(query))
        relation = self.steps.stateful(kind, rows, tuple(names), output, _described(ranked))
        return Relation(relation.inputs, relation.schema, windows_of(ranked.projections, source))

    async def _of_all_rows(
        self, ranked: Ranked, keys: list[exp.Expr], first: tuple[exp.Expr, int] | None = None
    ) -> Relation:
        """The rows of each key are kept, or the first so many of them by a number; what is computed of them changes."""
        source = ranked.source
        values = [aliased(key.copy(), f"_p{number}") for number, key in enumerate(keys)]
        values = values or [aliased(exp.Literal.number(0), _EVERYTHING)]
        names = [value.alias_or_name for value in values]
        own = [field.name for field in source.relation.columns if field.name in _read_by(ranked)]
        read = [column(name, source.name) for name in own]
        if first is None:
            more = column(OP_COLUMN, source.name) if source.relation.is_updating else _came()
        else:
            more = aliased(call("xxhash64", *(value.copy() for value in read)), _TIE)
        select = select_from_input(
            [*values, *read, more, column(TIMESTAMP_COLUMN, source.name)], alias=source.alias, where=ranked.where
        )
        schema = await self.analyst.schema_of(select, inputs_of(source.relation.schema))
        rows = self.steps.query(select, source.relation, schema, "rows to rank", own="over")
        came, kept, there = _rows_to_keep(names, own) if first is None else _first_rows(first, names, own, source.name)
        schema = await self.analyst.schema_of(came, inputs_of(schema))
        changes = self.steps.keyed(Key(came, None), rows, schema, "changes of rows to rank")
        ties = own if first is None else [_TIE]
        query = select_from_input(
            [*_values(ranked, ties), column(TIMESTAMP_COLUMN, source.name)], alias=source.alias or _input_alias()
        )
        result = nested(query, there)
        output = await self.analyst.schema_of(result, inputs_of(schema))
        merge, final = StageQuery(spark_sql(kept)), StageQuery(spark_sql(result))
        kind = UpdatingAggregate(merge, final, *self.ttl)
        return self.steps.stateful(kind, changes, tuple(names), with_op(output), _described(ranked))


def _rows_to_keep(names: Sequence[str], own: Sequence[str]) -> tuple[exp.Select, exp.Select, exp.Select]:
    """All rows, each once with how often it is there: what comes, what is kept of that, and the rows themselves."""
    every = [*names, *own]
    return counted(every, OP_COLUMN), kept_rows(every, names), spread([*own, TIMESTAMP_COLUMN])


def _first_rows(
    first: tuple[exp.Expr, int], names: Sequence[str], own: Sequence[str], table: str | None
) -> tuple[exp.Select, exp.Select, exp.Select]:
    """The same for the first so many of a key, of rows that are never taken back: these need not be counted.

    Ties are broken by a hash, so that what puts rows in order reads no more of them than the user's own order does."""
    number, limit = first
    number = _with_ties_broken(_unqualified(number, table), [_TIE], None, latest_first=True)
    columns = [column(name) for name in (*names, *own, _TIE, TIMESTAMP_COLUMN)]
    kept = select_from_input([*columns, aliased(hash_of(names), HASH_COLUMN)])
    came, kept = (first_rows(number, limit, select) for select in (select_from_input(columns), kept))
    return came, kept, select_from_input([column(name) for name in (*own, _TIE, TIMESTAMP_COLUMN)])


def windows_of(projections: Sequence[tuple[str, exp.Expr]], source: SelectSource) -> Windows:
    """Which columns of a SELECT tell the windows of its rows apart."""
    windows = source.relation.windows
    columns = frozenset(name for name, value in projections if windows.told_by(value, source.name))
    return Windows(columns, windows.width_us)


def _read_by(ranked: Ranked) -> frozenset[str]:
    """The names that its columns read, and perhaps a few more."""
    found = (column for _, tree in ranked.projections for column in tree.find_all(exp.Column))
    return frozenset(part.name for column in found for part in column.parts)


def _values(ranked: Ranked, tie_breakers: Sequence[str] = ()) -> Iterator[exp.Expr]:
    for name, tree in ranked.projections:
        yield aliased(_with_ties_broken(tree, tie_breakers, ranked.source.name), name)


def _with_ties_broken(
    tree: exp.Expr, names: Sequence[str], table: str | None, *, latest_first: bool = False
) -> exp.Expr:
    """The tree with an order that leaves nothing open; of equal rows, perhaps, the one of the latest event time."""
    root = exp.Paren(this=tree.copy())
    for over in root.find_all(exp.Window) if names else ():
        function = over.this
        while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            function = function.this
        frame = over.args.get("spec")
        by_rows = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
        if by_rows or function.name.lower() in _ORDERED:
            order = over.args.get("order") or exp.Order(expressions=[])
            ties = [exp.Ordered(this=column(name, table), desc=False, nulls_first=True) for name in names]
            if latest_first:
                ties.append(exp.Ordered(this=column(TIMESTAMP_COLUMN, table), desc=True, nulls_first=True))
            over.set("order", exp.Order(expressions=[*order.expressions, *ties]))
    result: exp.Expr = root.this
    return result


def _unqualified(tree: exp.Expr, table: str | None) -> exp.Expr:
    copy = tree.copy()
    for found in copy.find_all(exp.Column):
        if found.table == table and not found.args.get("db"):
            found.set("table", None)
    return copy


def _common_keys(overs: Sequence[exp.Window]) -> Iterator[exp.Expr]:
    """What all of them partition by."""
    first, *rest = overs
    others = [{spark_sql(key) for key in over.args.get("partition_by") or ()} for over in rest]
    for key in first.args.get("partition_by") or ():
        if all(spark_sql(key) in keys for keys in others):
            yield key


def _came() -> exp.Expr:
    return exp.Alias(this=spark_sql_cast(exp.Literal.number(1), "TINYINT"), alias=identifier(OP_COLUMN))


def _input_alias() -> exp.TableAlias:
    return exp.TableAlias(this=identifier("input"))


def _described(ranked: Ranked) -> str:
    names = ", ".join(name for name, _ in ranked.projections)
    return f"over: {names}" if len(names) <= 60 else f"over: {names[:60]}…"
