"""Relations: rows that the planner has so far, and the steps that make them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import (
    INPUT,
    OP_COLUMN,
    WATERMARK_COLUMN,
    AsyncUdf,
    EdgeKind,
    InstantJoin,
    Join,
    LookupJoin,
    OperatorKey,
    Output,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TemporalJoin,
    TtlTime,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.compiler.plan import Input, Joining, Key, Query, Scan, Stateful, Step, Write
from penstock.compiler.types import spark_name, spark_sql_cast
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE

TIMESTAMP = pa.field(TIMESTAMP_COLUMN, TIMESTAMP_TYPE, nullable=False)
POSITION_COLUMN: Final = "_position"
"""Where a row was in its source, for letters about it."""
OP = pa.field(OP_COLUMN, pa.int8(), nullable=False)
WATERMARK = pa.field(WATERMARK_COLUMN, TIMESTAMP_TYPE)
_ENDS: Final = ("start", "end")
HIDDEN: Final = (POSITION_COLUMN, OP_COLUMN, WATERMARK_COLUMN, TIMESTAMP_COLUMN)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows that rows are of: the columns each of which tells them apart, and how wide they are, if one width."""

    columns: frozenset[str] = frozenset()
    width_us: int | None = None

    def told_by(self, tree: exp.Expr, table: str | None = None) -> bool:
        """Whether a value tells them apart: one of the columns, or an end of one."""
        if isinstance(tree, exp.Paren):
            return self.told_by(tree.this, table)
        if isinstance(tree, exp.Dot):
            return tree.expression.name in _ENDS and self.told_by(tree.this, table)
        if not isinstance(tree, exp.Column):
            return False
        parts = [part.name for part in tree.parts]
        first, *fields = parts[1:] if len(parts) > 1 and parts[0] == table else parts
        return first in self.columns and all(field in _ENDS for field in fields)


@dataclass(frozen=True, slots=True)
class Versions:
    """The columns by which rows are told apart of which each is the newest of its key from its event time on."""

    key: tuple[str, ...]
    rows: Callable[[], Awaitable[Relation]] | None = None
    """All of them, where the relation has only the newest: some of those may never be among its changes."""
    order: tuple[exp.Ordered, ...] = ()
    """Which of several of one time comes first, by columns of these rows."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A column that numbers the rows of each key, and the same rows if only the first so many of each are asked for."""

    column: str
    limited: Callable[[int], Awaitable[Relation]]
    versions: Versions | None = None
    """Those numbered 1, where they are the newest of their keys."""


@dataclass(frozen=True, slots=True)
class Relation:
    """The rows of one or several steps, which all have this schema: the user's columns, then hidden ones."""

    inputs: tuple[Input, ...]
    schema: pa.Schema
    windows: Windows = Windows()
    late_letters: str | None = None
    """The source table whose late rows are letters for its dead-letter table."""
    ranking: Ranking | None = None
    times: Mapping[str, int] = field(default_factory=dict)
    """The columns that are the rows' event time, or always so many microseconds after it: a window's end is by one."""
    versions: Versions | None = None
    """If its rows are known to be versions."""

    @property
    def columns(self) -> list[pa.Field]:
        """The columns that users see."""
        return [field for field in self.schema if field.name not in HIDDEN]

    @property
    def hidden(self) -> list[pa.Field]:
        """The columns that every query passes on, `_timestamp` last."""
        return [field for field in self.schema if field.name in HIDDEN]

    def after_time_us(self, tree: exp.Expr, table: str | None = None) -> int | None:
        """By how much a value is after the event time of its row, if that is the same for all rows."""
        if not isinstance(tree, exp.Column):
            return None
        parts = [part.name for part in tree.parts]
        first, *fields = parts[1:] if len(parts) > 1 and parts[0] == table else parts
        return {TIMESTAMP_COLUMN: 0, **self.times}.get(first) if not fields else None

    @property
    def is_updating(self) -> bool:
        """Whether its rows are changes."""
        return OP_COLUMN in self.schema.names

    @property
    def has_watermark(self) -> bool:
        return WATERMARK_COLUMN in self.schema.names


class Steps:
    """The steps of a plan while it is made, in topological order."""

    def __init__(self) -> None:
        self._steps: dict[OperatorKey, Step] = {}
        self.late_letters: list[tuple[str, Relation]] = []
        """Rows that are too late for their windows, each with the table that they are of."""
        self.udf_letters: list[tuple[str, Relation]] = []
        """Rows for which a Python function failed, each with the table that they are for."""

    def scan(self, scan: Scan, columns: pa.Schema) -> Relation:
        """A source table."""
        schema = pa.schema([*columns, TIMESTAMP])
        return self._relation(
            Step(OperatorKey(f"source_{scan.table}"), f"{scan.table} ({scan.connector})", scan, (), schema)
        )

    def query(
        self, select: exp.Select, source: Relation, schema: pa.Schema, description: str, *, own: str = ""
    ) -> Relation:
        """A query over a relation. The same query over the same rows is one step, unless it is somebody's `own`."""
        query = Query(select)
        identity = "\n".join([query.sql, own, *(f"{part.step} {part.output}" for part in source.inputs)])
        key = OperatorKey(f"value_{_digest(identity)}")
        if own:
            key = self._unused(key)
        elif (found := self._steps.get(key)) is not None:
            return self._relation(found)
        return self._relation(Step(key, description, query, source.inputs, schema))

    def keyed(self, key: Key, source: Relation, schema: pa.Schema, description: str) -> Relation:
        """What is done before a shuffle."""
        identity = "\n".join([key.sql, *(f"{part.step}" for part in source.inputs)])
        name = self._unused(OperatorKey(f"key_{_digest(identity)}"))
        return self._relation(Step(name, description, key, source.inputs, schema))

    def stateful(
        self, kind: Stateful, source: Relation, keys: tuple[str, ...], schema: pa.Schema, description: str
    ) -> Relation:
        """An operator with state, which gets the rows of a key in one subtask."""
        inputs = tuple(replace(part, keys=keys) for part in source.inputs)
        names = {
            TumblingWindowAggregate: "tumble",
            SlidingWindowAggregate: "hop",
            SessionWindowAggregate: "session",
            UpdatingAggregate: "updating",
            WindowFunction: "over",
        }
        identity = "\n".join([_identity_of(kind), *keys, *sorted(self._sources(inputs))])
        name = self._unused(OperatorKey(f"{names[type(kind)]}_{_digest(identity)}"))
        return self._relation(Step(name, description, kind, inputs, schema))

    def joined(
        self, kind: Joining, left: Relation, right: Relation, keys: tuple[str, ...], schema: pa.Schema, description: str
    ) -> Relation:
        """An operator with two sides, whose rows of a key are in one subtask."""
        sides = ((left, EdgeKind.SHUFFLE_LEFT), (right, EdgeKind.SHUFFLE_RIGHT))
        inputs = tuple(replace(part, keys=keys, edge=edge) for side, edge in sides for part in side.inputs)
        identity = "\n".join([_identity(kind), *keys, *sorted(self._sources(inputs))])
        name = self._unused(OperatorKey(f"join_{_digest(identity)}"))
        return self._relation(Step(name, description, kind, inputs, schema))

    def lookup(self, join: LookupJoin, source: Relation, schema: pa.Schema, description: str) -> Relation:
        """A lookup of rows, of which there is one input."""
        identity = "\n".join([join.table, *join.keys, *(f"{part.step}" for part in source.inputs)])
        name = self._unused(OperatorKey(f"lookup_{_digest(identity)}"))
        return self._relation(Step(name, description, join, source.inputs, schema))

    def awaiting(self, kind: AsyncUdf, source: Relation, schema: pa.Schema, description: str) -> Relation:
        """Calls of an async function for rows."""
        identity = "\n".join([repr(kind), *(f"{part.step}" for part in source.inputs)])
        name = self._unused(OperatorKey(f"async_{_digest(identity)}"))
        return self._relation(Step(name, description, kind, source.inputs, schema))

    def _sources(self, inputs: Iterable[Input]) -> set[OperatorKey]:
        """The tables that rows are of: what is done to them on the way may change without a loss of state."""
        found: set[OperatorKey] = set()
        for part in inputs:
            step = self._steps[part.step]
            found |= self._sources(step.inputs) if step.inputs else {step.key}
        return found

    def unify(self, inputs: tuple[Input, ...], schema: pa.Schema) -> Relation:
        """The rows of several steps that nobody else reads, which get one schema."""
        for part in inputs:
            self._steps[part.step] = replace(self._steps[part.step], schema=schema)
        return Relation(inputs, schema)

    def write(self, write: Write, sources: Sequence[Relation]) -> None:
        """A sink table; its inputs get one schema."""
        schema = common_schema([source.schema for source in sources])
        inputs = self.unify(tuple(part for source in sources for part in source.inputs), schema).inputs
        key = OperatorKey(f"sink_{write.table}")
        self._steps[key] = Step(key, f"{write.table} ({write.connector})", write, inputs, schema)

    def all(self) -> tuple[Step, ...]:
        return tuple(self._steps.values())

    def _relation(self, step: Step) -> Relation:
        self._steps[step.key] = step
        return Relation((Input(step.key),), step.schema)

    def _unused(self, key: OperatorKey) -> OperatorKey:
        number, candidate = 2, key
        while candidate in self._steps:
            number, candidate = number + 1, OperatorKey(f"{key}_{number}")
        return candidate


def _kept_by(kind: Stateful) -> Stateful:
    """What an operator's state depends on: what is made of it in the end only where that may have to be taken back."""
    match kind:
        case SessionWindowAggregate():
            return replace(kind, final=StageQuery())
        case TumblingWindowAggregate() | SlidingWindowAggregate() if not kind.lateness_us:
            return replace(kind, final=StageQuery())
        case _:
            return kind


def _identity_of(kind: Stateful) -> str:
    """What an operator's state depends on; the time by which its keys grow old is part of that where it is the clock's,
    since state dated by one time cannot be read by the other."""
    if isinstance(kind, UpdatingAggregate) and kind.ttl_time is not TtlTime.EVENT:
        return f"{kind!r} {kind.ttl_time.name}"
    return repr(_kept_by(kind))


def _identity(kind: Joining) -> str:
    """What the state of a join depends on."""
    match kind:
        case InstantJoin(left, right, _):
            return f"instant {left.names} {right.names}"
        case Join(left, right, sql, how):
            aged = [] if kind.ttl_time is TtlTime.EVENT else [kind.ttl_time.name]
            return "\n".join([how.name, sql, *(f"{side.rows.names} {side.counted}" for side in (left, right)), *aged])
        case TemporalJoin(left, right, versions, _):
            return f"temporal {left.names} {right.names} {versions}"
        case _:
            assert_never(kind)


def _digest(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()[:8]


def dead_letters_of(scan: Relation, schema: pa.Schema) -> Relation:
    """The rows that a source refuses."""
    return Relation((Input(scan.inputs[0].step, Output.DEAD_LETTERS),), schema)


def column(name: str, table: str | None = None) -> exp.Column:
    """A column by its name."""
    return exp.Column(this=identifier(name), table=identifier(table) if table else None)


def identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def aliased(value: exp.Expr, name: str) -> exp.Expr:
    """A value under a name, which a column that is called so already has."""
    if isinstance(value, exp.Column) and value.name == name and not value.args.get("db"):
        return value
    return exp.Alias(this=value, alias=identifier(name))


def select_from_input(
    values: Sequence[exp.Expr], *, alias: exp.TableAlias | None = None, laterals: Sequence[exp.Expr] = (),
    where: exp.Expr | None = None,
) -> exp.Select:  # fmt: skip
    """A step's query."""
    return exp.Select(
        expressions=list(values),
        from_=exp.From(this=exp.Table(this=identifier(INPUT), alias=alias)),
        laterals=list(laterals) or None,
        where=exp.Where(this=where) if where is not None else None,
    )


def all_of(table: str, fields: Iterable[pa.Field]) -> exp.Select:
    """All columns of a table."""
    return exp.Select(
        expressions=[column(field.name) for field in fields], from_=exp.From(this=exp.Table(this=identifier(table)))
    )


def cast_column(source: pa.Field, target: pa.Field) -> exp.Expr:
    """A column of another type or name."""
    value: exp.Expr = column(source.name)
    if needs_cast(source.type, target.type):
        value = spark_sql_cast(value, spark_name(target.type))
    return aliased(value, target.name)


def needs_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark's types of two columns differ."""
    return spark_name(source) != spark_name(target)


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of rows of several, which differ in nothing but what may be null."""
    first, *rest = schemas
    if all(first.equals(other, check_metadata=True) for other in rest):
        return first
    return pa.schema([_nullable(field) if field.name not in HIDDEN else field for field in first])


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _nullable_type(field.type), True, field.metadata)


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if arrow.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind])
    if arrow.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if arrow.is_map(kind):
        return pa.map_(kind.key_field, _nullable(kind.item_field))
    return kind


def with_metadata(schema: pa.Schema, declared: list[pa.Field]) -> pa.Schema:
    """A schema from Spark, which knows no metadata, with that of the columns it was made of."""
    metadata = {field.name: field.metadata for field in declared}
    return pa.schema(
        [field.with_metadata(metadata[field.name]) if metadata.get(field.name) else field for field in schema]
    )
