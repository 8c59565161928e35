"""Relations: rows that the planner has so far, and the steps that make them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import INPUT, OperatorKey, Output
from penstock.compiler.plan import Input, Query, Scan, Step, Write
from penstock.compiler.types import spark_name, spark_sql_cast
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE

TIMESTAMP = pa.field(TIMESTAMP_COLUMN, TIMESTAMP_TYPE, nullable=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """The rows of one or several steps, which all have this schema, `_timestamp` last."""

    inputs: tuple[Input, ...]
    schema: pa.Schema

    @property
    def columns(self) -> list[pa.Field]:
        """The columns that users see."""
        return [field for field in self.schema if field.name != TIMESTAMP_COLUMN]


class Steps:
    """The steps of a plan while it is made, in topological order."""

    def __init__(self) -> None:
        self._steps: dict[OperatorKey, Step] = {}

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
        key = OperatorKey(f"value_{hashlib.sha256(identity.encode()).hexdigest()[:8]}")
        if own:
            key = self._unused(key)
        elif (found := self._steps.get(key)) is not None:
            return self._relation(found)
        return self._relation(Step(key, description, query, source.inputs, schema))

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
    return pa.schema([_nullable(field) if field.name != TIMESTAMP_COLUMN else field for field in first])


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
