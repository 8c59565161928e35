"""Joins as steps: both sides by their keys, and an operator that joins the rows of a window, or rows as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import (
    COUNT_COLUMN,
    LEFT,
    OP_COLUMN,
    RIGHT,
    InstantJoin,
    Join,
    JoinKind,
    JoinSide,
)
from penstock.compiler.aggregates import with_op
from penstock.compiler.analysis import inputs_of
from penstock.compiler.changes import counted, kept_rows, spread, with_hash
from penstock.compiler.diagnostics import refusal
from penstock.compiler.dialect import spark_sql
from penstock.compiler.functions import call
from penstock.compiler.names import FromTable
from penstock.compiler.plan import Key, nested
from penstock.compiler.planning import Planning
from penstock.compiler.relations import (
    HIDDEN,
    Relation,
    Windows,
    aliased,
    all_of,
    column,
    identifier,
    select_from_input,
)
from penstock.compiler.rewrite import to_spark
from penstock.compiler.time_bounds import TimeBounds, time_bounds
from penstock.compiler.types import is_unitable, spark_name, spark_sql_cast, user_name
from penstock.connectors.base import TIMESTAMP_COLUMN

_EVERYTHING: Final = "_k0"
_SIDE: Final = "_side"
"""A column of a right side that has no others, by which its rows are told from those of the left side."""
_SQL: Final = {
    JoinKind.INNER: ("", "INNER"),
    JoinKind.LEFT: ("LEFT", "OUTER"),
    JoinKind.RIGHT: ("RIGHT", "OUTER"),
    JoinKind.FULL: ("FULL", "OUTER"),
    JoinKind.SEMI: ("LEFT", "SEMI"),
    JoinKind.ANTI: ("LEFT", "ANTI"),
}
_PADDED: Final = {
    LEFT: frozenset({JoinKind.RIGHT, JoinKind.FULL}),
    RIGHT: frozenset({JoinKind.LEFT, JoinKind.FULL}),
}
"""The joins in whose results a side may be missing."""
_LEFT_ONLY: Final = frozenset({JoinKind.SEMI, JoinKind.ANTI})


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a join: a relation, and what each of its columns is called where the tables are joined."""

    relation: Relation
    names: Mapping[str, str]
    """By the column's own name."""
    where: tuple[exp.Expr, ...] = ()
    """What its rows must be, in terms of those names."""

    @classmethod
    def of_table(cls, table: FromTable, used: frozenset[str]) -> Operand:
        """What is used of a table."""
        names = {name: table.spelled(name) for name in (*table.columns, TIMESTAMP_COLUMN)}
        return cls(table.relation, MappingProxyType({own: name for own, name in names.items() if name in used}))

    @classmethod
    def of_joined(cls, relation: Relation) -> Operand:
        """What was joined already."""
        return cls(relation, MappingProxyType({found.name: found.name for found in relation.columns}))

    @property
    def windows(self) -> Windows:
        own = self.relation.windows
        told = frozenset(name for column, name in self.names.items() if column in own.columns)
        return Windows(told, own.width_us)

    @property
    def times(self) -> Mapping[str, int]:
        """The columns that are the rows' event time, and by how much they are after it."""
        own = {**self.relation.times, TIMESTAMP_COLUMN: 0}
        return {name: own[column] for column, name in self.names.items() if column in own}

    def has(self, tree: exp.Expr) -> bool:
        """Whether an expression reads nothing but this side."""
        known = frozenset(self.names.values())
        return all(found.parts[0].name in known for found in tree.find_all(exp.Column))


@dataclass(frozen=True, slots=True)
class JoinClause:
    """A join as the user wrote it: its kind, and what rows of the two sides must have in common, part by part."""

    kind: JoinKind
    conditions: tuple[exp.Expr, ...]
    written: exp.Expr
    """For its place."""
    on_nothing: bool = False
    """There may be no equality: all rows are then of one key."""
    as_of: exp.Expr | None = None
    """The time of which versions of the right are asked for."""


@dataclass(frozen=True, slots=True)
class TableJoin:
    """A table that is joined with those before it."""

    table: FromTable
    clause: JoinClause


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A side as it reaches the operator."""

    rows: Relation
    columns: tuple[str, ...]
    """Besides keys, the count and the event time."""
    counted: bool
    """Its rows can be taken back: each is there once, with how often it came."""


@dataclass(frozen=True, slots=True)
class _Joined:
    """Both sides, the names of their keys, the query over both and what it gives."""

    left: _Keyed
    right: _Keyed
    names: tuple[str, ...]
    sql: str
    output: pa.Schema


@dataclass(frozen=True, slots=True)
class _Matched:
    """The conditions of a join: equalities, a side each, and the rest."""

    pairs: tuple[tuple[exp.Expr, exp.Expr], ...]
    rest: tuple[exp.Expr, ...]
    windows: tuple[tuple[exp.Expr, exp.Expr], ...] = field(default=())
    """Those of the pairs that are of windows."""

    def of_side(self, place: int) -> tuple[exp.Expr, ...]:
        """What one side of each equality says."""
        return tuple(pair[place] for pair in self.pairs)


@dataclass(frozen=True, slots=True)
class Keys:
    """By what rows of one side are told apart, and the types and names of that."""

    values: tuple[exp.Expr, ...]
    kinds: Sequence[pa.DataType]
    names: tuple[str, ...]

    @property
    def columns(self) -> list[exp.Expr]:
        """All of them; without any, one that is the same for all rows."""
        if not self.values:
            return [aliased(exp.Literal.number(0), _EVERYTHING)]
        return [
            aliased(spark_sql_cast(exp.Paren(this=value.copy()), spark_name(kind)), name)
            for value, kind, name in zip(self.values, self.kinds, self.names, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Joins(Planning):
    """Plans joins."""

    async def relation(self, left: Operand, right: Operand, clause: JoinClause, used: frozenset[str]) -> Relation:
        """The rows of a join, with the columns that are used; these are called as the operands' names say."""
        bounds = time_bounds(clause.conditions, left.times, right.times)
        clause = replace(clause, conditions=tuple(to_spark(part, self.text) for part in clause.conditions))
        left, right, matched = _matched(left, right, clause)
        if not matched.pairs and not clause.on_nothing:
            hint = "join by at least one equality, such as a.id = b.id"
            raise refusal("unsupported", "a join of streams needs an equality", self.text.span(clause.written), hint)
        is_windowed = self._is_windowed(left, right, matched, clause)
        kinds = await self.key_types(left, right, matched.pairs, clause)
        names = tuple(f"_k{place}" for place in range(len(kinds))) or (_EVERYTHING,)
        used |= {found.parts[0].name for part in matched.rest for found in part.find_all(exp.Column)}
        sides = [
            await self._side(operand, Keys(matched.of_side(place), kinds, names), used, clause, place, is_windowed)
            for place, operand in enumerate((left, right))
        ]
        select = _joined(sides[0], sides[1], names, clause.kind, matched.rest, is_windowed)
        inputs = {LEFT: sides[0].rows.schema, RIGHT: sides[1].rows.schema}
        output = await self.analyst.schema_of(select, inputs)
        output = pa.schema([*(found for found in output if found.name != TIMESTAMP_COLUMN), NOT_NULL_TIME])
        joined = _Joined(sides[0], sides[1], names, spark_sql(select), output)
        if is_windowed:
            return replace(self._of_windows(joined, clause), windows=_windows_of(left, right, clause.kind))
        return self._of_rows(joined, clause, bounds)

    def _of_windows(self, joined: _Joined, clause: JoinClause) -> Relation:
        left, right = joined.left.rows, joined.right.rows
        kind = InstantJoin(left.schema, right.schema, joined.sql)
        described = f"{clause.kind.name.lower()} join of windows"
        return self.steps.joined(kind, left, right, joined.names, joined.output, described)

    def _of_rows(self, joined: _Joined, clause: JoinClause, bounds: TimeBounds | None) -> Relation:
        left, right = joined.left, joined.right
        changes = left.counted or right.counted
        # What is taken back must find what it was joined with, however old that is.
        times = (0, 0) if bounds is None or changes else bounds.retention_us(clause.kind)
        kept = [_kept(side, joined.names, time) for side, time in zip((left, right), times, strict=True)]
        kind = Join(kept[0], kept[1], joined.sql, clause.kind, *self.ttl)
        if changes or clause.kind not in (JoinKind.INNER, JoinKind.SEMI):
            joined = replace(joined, output=with_op(joined.output))
        described = f"{clause.kind.name.lower()} join"
        return self.steps.joined(kind, left.rows, right.rows, joined.names, joined.output, described)

    def _is_windowed(self, left: Operand, right: Operand, matched: _Matched, clause: JoinClause) -> bool:
        """Whether rows of the two sides meet only when they are of the same window."""
        if not matched.windows or left.relation.is_updating or right.relation.is_updating:
            return False
        widths = left.windows.width_us, right.windows.width_us
        if widths[0] != widths[1]:
            shown = " and ".join("sessions" if width is None else f"{width / 1e6:g} seconds" for width in widths)
            message = f"the windows of the two sides differ: {shown}"
            raise refusal("mismatched_windows", message, self.text.span(clause.written))
        return True

    async def key_types(
        self, left: Operand, right: Operand, pairs: Sequence[tuple[exp.Expr, exp.Expr]], clause: JoinClause
    ) -> list[pa.DataType]:
        """The type that both sides of each equality are compared as."""
        if not pairs:
            return []
        schemas = [
            await self.analyst.schema_of(
                nested(select_from_input([aliased(pair[place].copy(), f"_k{number}")
                                          for number, pair in enumerate(pairs)]), named(operand)),
                inputs_of(operand.relation.schema),
            )
            for place, operand in enumerate((left, right))
        ]  # fmt: skip
        for pair, one, other in zip(pairs, *schemas, strict=True):
            if not is_unitable(one.type, other.type):
                message = f"{user_name(one.type)} cannot be compared with {user_name(other.type)}"
                hint = f"write CAST(… AS {user_name(one.type)})"
                raise refusal("type_mismatch", message, self.text.span(pair[1], pair[0], clause.written), hint)
        both = exp.Union(this=all_of("one", schemas[0]), expression=all_of("other", schemas[1]), distinct=False)
        common = await self.analyst.schema_of(both, {"one": schemas[0], "other": schemas[1]})
        return [found.type for found in common]

    async def _side(
        self, operand: Operand, keys: Keys, used: frozenset[str], clause: JoinClause, place: int, is_windowed: bool
    ) -> _Keyed:
        """Rows with their keys: each once with how often it came where rows can be taken back, else with the hash of
        the keys where it is kept by that."""
        own = tuple(name for name in operand.names.values() if name in used)
        marked = [aliased(exp.true(), _SIDE)] if place and not own else []
        hidden = [*([column(OP_COLUMN)] if operand.relation.is_updating else []), column(TIMESTAMP_COLUMN)]
        conditions = [part.copy() for part in operand.where]
        if not _keeps_unmatched(clause.kind, place):
            conditions += [is_there(exp.Paren(this=key.copy())) for key in keys.values]
        rows = nested(
            select_from_input(
                [*keys.columns, *(column(name) for name in own), *marked, *hidden],
                where=exp.and_(*conditions, copy=False) if conditions else None,
            ),
            named(operand),
        )
        if operand.relation.is_updating:
            rows = nested(counted([*keys.names, *own, *([_SIDE] if marked else [])], OP_COLUMN), rows)
        elif not is_windowed:
            rows = with_hash(rows, keys.names)
        schema = await self.analyst.schema_of(rows, inputs_of(operand.relation.schema))
        keyed = self.steps.keyed(Key(rows, None), operand.relation, schema, f"{(LEFT, RIGHT)[place]} side of a join")
        return _Keyed(keyed, own, operand.relation.is_updating)


NOT_NULL_TIME: Final = pa.field(TIMESTAMP_COLUMN, pa.timestamp("us"), nullable=False)


def conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition, all of which must hold."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.And):
        yield from conjuncts(tree.this)
        yield from conjuncts(tree.expression)
    else:
        yield tree


def _matched(left: Operand, right: Operand, clause: JoinClause) -> tuple[Operand, Operand, _Matched]:
    """The conditions by what they say; those about one side alone are asked of its rows ahead of the join, where a row
    that does not meet them is of no use."""
    pairs, windows, rest = [], [], []
    before: dict[int, list[exp.Expr]] = {0: [], 1: []}
    for condition in clause.conditions:
        if (pair := equality(condition, left, right)) is not None:
            pairs.append(pair)
            if left.windows.told_by(pair[0]) and right.windows.told_by(pair[1]):
                windows.append(pair)
        elif right.has(condition) and not _keeps_unmatched(clause.kind, 1):
            before[1].append(condition)
        elif left.has(condition) and not _keeps_unmatched(clause.kind, 0):
            before[0].append(condition)
        else:
            rest.append(condition)
    left, right = (replace(side, where=(*side.where, *before[place])) for place, side in enumerate((left, right)))
    return left, right, _Matched(tuple(pairs), tuple(rest), tuple(windows))


def equality(condition: exp.Expr, left: Operand, right: Operand) -> tuple[exp.Expr, exp.Expr] | None:
    """The sides of a condition that equates a value of the left with one of the right."""
    if not isinstance(condition, exp.EQ):
        return None
    one, other = condition.this, condition.expression
    if not (_reads(one) and _reads(other)):
        return None
    if left.has(one) and right.has(other):
        return one, other
    if left.has(other) and right.has(one):
        return other, one
    return None


def _reads(tree: exp.Expr) -> bool:
    return tree.find(exp.Column) is not None


def _keeps_unmatched(kind: JoinKind, place: int) -> bool:
    """Whether rows of a side are in the result though they have no match."""
    if place == 0:
        return kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI)
    return kind in (JoinKind.RIGHT, JoinKind.FULL)


def named(operand: Operand, hidden_names: Sequence[str] = (OP_COLUMN, TIMESTAMP_COLUMN)) -> exp.Select:
    """The rows of an operand, with the names that its columns have where the tables are joined."""
    own = [exp.Alias(this=column(name), alias=identifier(spelled)) for name, spelled in operand.names.items()]
    hidden = [column(found.name) for found in operand.relation.hidden if found.name in hidden_names]
    return select_from_input([*own, *hidden])


def _joined(
    left: _Keyed, right: _Keyed, names: tuple[str, ...], kind: JoinKind, rest: Sequence[exp.Expr], is_windowed: bool
) -> exp.Select:
    """The query over both sides."""
    times = [column(TIMESTAMP_COLUMN, "l"), column(TIMESTAMP_COLUMN, "r")]
    columns = [column(name, "l") for name in left.columns]
    if kind in _LEFT_ONLY:
        time: exp.Expr = times[0]
    else:
        columns += [column(name, "r") for name in right.columns]
        time = call("greatest", *times)
    same = [exp.EQ(this=column(name, "l"), expression=column(name, "r")) for name in names]
    if is_windowed:
        same.append(exp.EQ(this=times[0].copy(), expression=times[1].copy()))
    condition = exp.and_(*same, *(exp.Paren(this=part.copy()) for part in rest), copy=False)
    side, word = _SQL[kind]
    return exp.Select(
        expressions=[*columns, exp.Alias(this=time, alias=identifier(TIMESTAMP_COLUMN))],
        from_=exp.From(this=_input(LEFT, "l", left, names)),
        joins=[exp.Join(this=_input(RIGHT, "r", right, names), on=condition, side=side or None, kind=word)],
    )


def _input(name: str, alias: str, side: _Keyed, names: tuple[str, ...]) -> exp.Expr:
    table = exp.Table(this=identifier(name))
    if not side.counted:
        table.set("alias", exp.TableAlias(this=identifier(alias)))
        return table
    rows = spread([*names, *side.columns, TIMESTAMP_COLUMN])
    rows.set("from_", exp.From(this=table))
    return exp.Subquery(this=rows, alias=exp.TableAlias(this=identifier(alias)))


def _kept(side: _Keyed, names: tuple[str, ...], retention_us: int) -> JoinSide:
    schema = side.rows.schema
    if not side.counted:
        return JoinSide(schema, retention_us=retention_us)
    own = [name for name in schema.names if name not in HIDDEN and name != COUNT_COLUMN]
    return JoinSide(schema, spark_sql(kept_rows(own, names)))


def _windows_of(left: Operand, right: Operand, kind: JoinKind) -> Windows:
    """Which columns of the result tell its windows apart: those of sides that are never missing."""
    told = frozenset() if kind in _PADDED[LEFT] else left.windows.columns
    if kind not in _PADDED[RIGHT] and kind not in _LEFT_ONLY:
        told |= right.windows.columns
    return Windows(told, left.windows.width_us)


def is_there(value: exp.Expr) -> exp.Expr:
    """That a value is not NULL."""
    return exp.Not(this=exp.Is(this=value, expression=exp.Null()))
