"""Which Arrow types a fragment takes and gives back, and how they cross to Spark, which has fewer.

Spark has no unsigned integers, no times but of nanoseconds, no timestamps but of microseconds, and no dictionaries.
Each such type crosses as the narrowest of Spark's that holds all its values, and comes back as what was declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types

from penstock.spark.errors import DataError, FragmentRefused

_SAME: tuple[Callable[[pa.DataType], bool], ...] = (
    types.is_null, types.is_boolean, types.is_signed_integer, types.is_float32, types.is_float64, types.is_string,
    types.is_binary, types.is_date32,
)  # fmt: skip
_WIDER: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_SPARK_INTERVAL = pa.month_day_nano_interval()


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which rows of `schema` cross to the JVM."""
    return pa.schema([_wire_field(field, field.name) for field in schema])


def _wire_field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, _wire_type(field.type, path), field.nullable)


def _wire_type(kind: pa.DataType, path: str) -> pa.DataType:
    if any(is_same(kind) for is_same in _SAME) or kind == _SPARK_INTERVAL:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_time(kind):
        return pa.time64("ns")
    if types.is_duration(kind) and kind.unit != "ns":
        return pa.duration("us")
    if types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_dictionary(kind):
        return _wire_type(kind.value_type, path)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    return _nested_wire_type(kind, path)


def _nested_wire_type(kind: pa.DataType, path: str) -> pa.DataType:
    if types.is_struct(kind):
        return pa.struct([_wire_field(field, f"{path}.{field.name}") for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_wire_field(kind.value_field, f"{path}[]"))
    if types.is_map(kind):
        # Spark finds the two by these names.
        key = _wire_field(kind.key_field, f"{path} key").with_name("key")
        return pa.map_(key, _wire_field(kind.item_field, f"{path} value").with_name("value"))
    raise FragmentRefused(f"column {path} is of type {kind}, which Spark has no counterpart for", hint=_hint(kind))


def _hint(kind: pa.DataType) -> str | None:
    if types.is_timestamp(kind) or types.is_duration(kind):
        return "use microseconds"
    return "the greatest precision of a decimal is 38" if types.is_decimal(kind) else None


def to_wire(batch: pa.RecordBatch, declared: pa.Schema, wire: pa.Schema) -> pa.RecordBatch:
    """A batch of the declared schema as it crosses to the JVM."""
    check(batch, declared)
    return batch if batch.schema.equals(wire) else cast(batch, wire)


def check(batch: pa.RecordBatch, declared: pa.Schema) -> None:
    """Raises ValueError for a batch that is not as declared."""
    if not batch.schema.equals(declared):
        raise ValueError(f"the batch's schema is not the input's: {batch.schema} instead of {declared}")
    for field, column in zip(declared, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise ValueError(f"column {field.name} is declared not null and holds nulls")


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in another schema; a value that does not fit is the user's error, not a wrong value."""
    return cast_columns(batch.columns, schema)


def cast_columns(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Columns as a batch of a schema."""
    try:
        columns = [
            column if column.type == field.type else _cast_column(column, field.type)
            for field, column in zip(schema, columns, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"a value does not fit its column: {error}", sql="", error_class="CAST_OVERFLOW") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if types.is_dictionary(column.type) and not types.is_dictionary(kind):
        column = column.dictionary_decode()
    return column.cast(kind, safe=True)


def refuse_unlike(declared: pa.Schema, planned: pa.Schema) -> None:
    """Refuses a declared output schema that the planned one cannot be brought to without changing values' meaning."""
    expected = wire_schema(declared)
    if expected.names != planned.names:
        raise FragmentRefused(f"the query gives the columns {planned.names}, not the declared {expected.names}")
    for declared_field, expected_field, field in zip(declared, expected, planned, strict=True):
        if not _same_type(expected_field.type, field.type):
            raise FragmentRefused(
                f"column {field.name} is of type {field.type}, not {declared_field.type} as declared",
                hint=f"cast it in the query to what crosses as {expected_field.type}",
            )
        if field.nullable and not declared_field.nullable:
            raise FragmentRefused(
                f"column {field.name} may be null, but is declared not null",
                hint="use coalesce, or declare it nullable",
            )


def _same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Equal but for the nullability inside nested types and their inner names."""
    if types.is_struct(one) and types.is_struct(other):
        return [f.name for f in one] == [f.name for f in other] and all(
            _same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    if types.is_list(one) and types.is_list(other):
        return _same_type(one.value_type, other.value_type)
    if types.is_map(one) and types.is_map(other):
        return _same_type(one.key_type, other.key_type) and _same_type(one.item_type, other.item_type)
    return bool(one == other)
