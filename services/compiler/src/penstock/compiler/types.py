"""The types of the language: from SQL to Arrow, from Arrow to names that Spark and users know, and what fits what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.compiler.diagnostics import refusal
from penstock.compiler.positions import Text
from penstock.spark.conversion import wire_schema

JSON_METADATA: Final = MappingProxyType({b"penstock.type": b"json"})

SPARK_TYPE: Final = "spark_type"
"""The key in the meta of a DataType of a tree, under which Spark's name of it is."""

_MAX_PRECISION: Final = 38
_DECIMAL_DEFAULT: Final = (38, 10)

# An unsigned integer is the next wider signed one: Spark has none.
_SIMPLE: Final[Mapping[exp.DType, pa.DataType]] = MappingProxyType(
    {
        exp.DType.BOOLEAN: pa.bool_(),
        exp.DType.TINYINT: pa.int8(),
        exp.DType.SMALLINT: pa.int16(),
        exp.DType.INT: pa.int32(),
        exp.DType.BIGINT: pa.int64(),
        exp.DType.UTINYINT: pa.int16(),
        exp.DType.USMALLINT: pa.int32(),
        exp.DType.UINT: pa.int64(),
        exp.DType.UBIGINT: pa.decimal128(20, 0),
        exp.DType.FLOAT: pa.float32(),
        exp.DType.DOUBLE: pa.float64(),
        exp.DType.TEXT: pa.string(),
        exp.DType.VARCHAR: pa.string(),
        exp.DType.NVARCHAR: pa.string(),
        exp.DType.CHAR: pa.string(),
        exp.DType.BPCHAR: pa.string(),
        exp.DType.NAME: pa.string(),
        exp.DType.UUID: pa.string(),
        exp.DType.JSON: pa.string(),
        exp.DType.JSONB: pa.string(),
        exp.DType.VARBINARY: pa.binary(),
        exp.DType.BINARY: pa.binary(),
        exp.DType.BLOB: pa.binary(),
        exp.DType.DATE: pa.date32(),
        exp.DType.TIME: pa.time64("ns"),
        exp.DType.TIMESTAMP: pa.timestamp("us"),
        exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
        exp.DType.DATETIME: pa.timestamp("us"),
        exp.DType.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
        exp.DType.TIMESTAMPLTZ: pa.timestamp("us", tz="UTC"),
        exp.DType.INTERVAL: pa.duration("us"),
        exp.DType.NULL: pa.null(),
    }
)
_JSON: Final = frozenset({exp.DType.JSON, exp.DType.JSONB})

_SPARK_NAMES: Final[Mapping[pa.DataType, str]] = MappingProxyType(
    {
        pa.null(): "VOID",
        pa.bool_(): "BOOLEAN",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.string(): "STRING",
        pa.binary(): "BINARY",
        pa.date32(): "DATE",
        pa.time64("ns"): "TIME(6)",
        pa.timestamp("us"): "TIMESTAMP_NTZ",
        pa.timestamp("us", tz="UTC"): "TIMESTAMP_LTZ",
        pa.duration("us"): "INTERVAL DAY TO SECOND",
        pa.month_day_nano_interval(): "INTERVAL",
    }
)
_USER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "VOID": "NULL",
        "STRING": "TEXT",
        "BINARY": "BYTEA",
        "TIME(6)": "TIME",
        "TIMESTAMP_NTZ": "TIMESTAMP",
        "TIMESTAMP_LTZ": "TIMESTAMPTZ",
        "INTERVAL DAY TO SECOND": "INTERVAL",
    }
)


def arrow_type(kind: exp.DataType, text: Text, near: exp.Expr | None = None) -> pa.DataType:
    """The Arrow type of a type in SQL; `near` has the place of a type that has none itself."""
    if kind.this in _SIMPLE:
        return _SIMPLE[kind.this]
    match kind.this:
        case exp.DType.DECIMAL:
            return _decimal(kind, text, near)
        case exp.DType.ARRAY | exp.DType.LIST if len(kind.expressions) == 1:
            return pa.list_(arrow_type(kind.expressions[0], text, near))
        case exp.DType.STRUCT if kind.expressions:
            return pa.struct([_struct_field(field, text, near) for field in kind.expressions])
        case exp.DType.MAP if len(kind.expressions) == 2:
            key, value = (arrow_type(part, text, near) for part in kind.expressions)
            return pa.map_(key, value)
    name = kind.sql().upper()
    hint = "write T[] or ARRAY<T>" if kind.this is exp.DType.ARRAY else "the types are listed in the SQL reference"
    raise refusal("unknown_type", f"unknown type {name}", text.span(kind, near), hint)


def field_metadata(kind: exp.DataType) -> Mapping[bytes, bytes] | None:
    """What a column of a type says of itself beyond its Arrow type."""
    return JSON_METADATA if kind.this in _JSON else None


def is_json(field: pa.Field) -> bool:
    """Whether a column holds JSON."""
    return bool(field.metadata) and field.metadata.get(b"penstock.type") == b"json"


def _decimal(kind: exp.DataType, text: Text, near: exp.Expr | None) -> pa.DataType:
    parameters = [parameter.name for parameter in kind.expressions]
    numbers = [int(parameter) for parameter in parameters if parameter.isdecimal()]
    precision, scale = numbers[0] if numbers else _DECIMAL_DEFAULT[0], numbers[1] if len(numbers) > 1 else 0
    if not parameters:
        precision, scale = _DECIMAL_DEFAULT
    if len(numbers) != len(parameters) or not 1 <= precision <= _MAX_PRECISION or scale > precision:
        message = f"DECIMAL({', '.join(parameters)}) is not possible"
        hint = f"the precision is 1 to {_MAX_PRECISION}, the scale 0 to the precision"
        raise refusal("unknown_type", message, text.span(kind, near), hint)
    return pa.decimal128(precision, scale)


def _struct_field(field: exp.Expr, text: Text, near: exp.Expr | None) -> pa.Field:
    if not isinstance(field, exp.ColumnDef) or not isinstance(field.kind, exp.DataType):
        raise refusal("unknown_type", "a field of a STRUCT has a name and a type", text.span(field, near))
    constraints = [constraint.kind for constraint in field.constraints]
    required = any(
        isinstance(kind, exp.NotNullColumnConstraint) and not kind.args.get("allow_null") for kind in constraints
    )
    metadata = field_metadata(field.kind)
    return pa.field(field.name, arrow_type(field.kind, text, near), not required, metadata and dict(metadata))


def spark_name(kind: pa.DataType) -> str:
    """What Spark calls a type in CAST."""
    if arrow.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if arrow.is_list(kind):
        return f"ARRAY<{spark_name(kind.value_type)}>"
    if arrow.is_struct(kind):
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {spark_name(field.type)}' for field in kind)}>"
    if arrow.is_map(kind):
        return f"MAP<{spark_name(kind.key_type)}, {spark_name(kind.item_type)}>"
    if kind not in _SPARK_NAMES:
        kind = wire_schema(pa.schema([("value", kind)])).field(0).type
        return _SPARK_NAMES[kind] if kind in _SPARK_NAMES else spark_name(kind)
    return _SPARK_NAMES[kind]


def spark_sql_cast(value: exp.Expr, name: str) -> exp.Cast:
    """A cast to a type by Spark's name of it."""
    kind = exp.DataType(this=exp.DType.USERDEFINED)
    kind.meta[SPARK_TYPE] = name
    return exp.Cast(this=value, to=kind)


def user_name(kind: pa.DataType) -> str:
    """What users call a type."""
    if arrow.is_list(kind):
        return f"{user_name(kind.value_type)}[]"
    if arrow.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name} {user_name(field.type)}' for field in kind)}>"
    if arrow.is_map(kind):
        return f"MAP<{user_name(kind.key_type)}, {user_name(kind.item_type)}>"
    name = spark_name(kind)
    return _USER_NAMES.get(name, name)


def quoted(name: str) -> str:
    """A name as Spark takes it literally."""
    return f"`{name.replace('`', '``')}`"


def is_unitable(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether the two sides of UNION ALL can have these types in one column."""
    if same_type(one, other) or arrow.is_null(one) or arrow.is_null(other):
        return True
    if arrow.is_list(one) and arrow.is_list(other):
        return is_unitable(one.value_type, other.value_type)
    return (_is_number(one) and _is_number(other)) or (_is_moment(one) and _is_moment(other))


def _is_number(kind: pa.DataType) -> bool:
    return bool(arrow.is_integer(kind) or arrow.is_floating(kind) or arrow.is_decimal(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(arrow.is_date(kind) or arrow.is_timestamp(kind))


def _is_text_like(kind: pa.DataType) -> bool:
    return bool(
        _is_number(kind) or _is_moment(kind) or arrow.is_boolean(kind) or arrow.is_time(kind) or arrow.is_string(kind)
    )


_ASSIGNABLE: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...]] = (
    (_is_number, _is_number),
    (_is_moment, _is_moment),
    (_is_text_like, arrow.is_string),
    (arrow.is_duration, arrow.is_duration),
    (arrow.is_time, arrow.is_time),
)


def is_assignable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a value may be stored in a column of another type, as Postgres' assignment casts have it."""
    if same_type(source, target) or arrow.is_null(source):
        return True
    if arrow.is_list(source) and arrow.is_list(target):
        return is_assignable(source.value_type, target.value_type)
    if arrow.is_struct(source) and arrow.is_struct(target) and source.num_fields == target.num_fields:
        return all(is_assignable(one.type, other.type) for one, other in zip(source, target, strict=True))
    if arrow.is_map(source) and arrow.is_map(target):
        return is_assignable(source.key_type, target.key_type) and is_assignable(source.item_type, target.item_type)
    return any(is_source(source) and is_target(target) for is_source, is_target in _ASSIGNABLE)


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Equal, but for the nullability and the names of what is inside lists and maps."""
    if arrow.is_struct(one) and arrow.is_struct(other):
        return [field.name for field in one] == [field.name for field in other] and all(
            same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    if arrow.is_list(one) and arrow.is_list(other):
        return same_type(one.value_type, other.value_type)
    if arrow.is_map(one) and arrow.is_map(other):
        return same_type(one.key_type, other.key_type) and same_type(one.item_type, other.item_type)
    return bool(one == other)
