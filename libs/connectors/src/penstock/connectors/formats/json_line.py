"""One line of JSON as one row, exactly: what a line means is written here.

The vectorised decoder of `json` must agree with this one on every line that it takes; the others come here, each to
be taken or to get its own reason. A number is kept as its digits until a column says what it should be.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.errors import UnsupportedType, shorten

Path = tuple[str, ...]
Read = Callable[[Any], Any]

JSON_METADATA: Final = {b"penstock.type": b"json"}
"""On a field of text: the column holds JSON as it came."""

_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d(?::\d\d(?::\d\d)?)?)(?:(?<=:\d\d:\d\d)\.(\d{1,9}))?(Z|z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_ZONE: Final = re.compile(r"([+-])(\d\d):?(\d\d)?")
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps have no zone here, and mean UTC
_LARGEST_EXPONENT: Final = 400
"""Of a number that is asked whether it is whole; 1e999999999 must not be written out."""


class BadLine(Exception):
    """A line that is no row of the table; the message says why, and quotes little."""


class TooDeep(BadLine):
    """A line that is nested more deeply than this module can read."""


class Integer(str):
    """The digits of a JSON number without fraction and exponent."""

    __slots__ = ()


class Real(str):
    """The digits of a JSON number with a fraction or an exponent."""

    __slots__ = ()


class RowReader:
    """Reads lines into Python values of a schema's columns, those that `pa.array` takes for its types."""

    def __init__(self, schema: pa.Schema, numeric_timestamps: set[Path]) -> None:
        """`numeric_timestamps` is kept to the timestamp columns whose last value was a number."""
        self._columns = [(field.name, _reader(field, (field.name,), numeric_timestamps)) for field in schema]

    def read(self, line: bytes) -> tuple[Any, ...]:
        """The values of a line, or BadLine."""
        members = parse_object(line)
        return tuple(read(members.get(name, _MISSING)) for name, read in self._columns)


class _Missing:
    """A key that is not there."""


_MISSING: Final = _Missing()


def is_json(field: pa.Field) -> bool:
    """Whether a column holds JSON as text."""
    return field.metadata is not None and field.metadata.get(b"penstock.type") == b"json"


def times_of(texts: Any) -> Any:
    """Times of day from text such as 14:23 or 14:23:10.5, which Arrow reads only behind a date."""
    behind_date = pc.binary_join_element_wise("1970-01-01", texts, " ")
    return behind_date.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.time64("us"))


def parse_object(line: bytes) -> dict[str, Any]:
    """The members of the object that a line is; of a key that is there twice the last one counts."""
    try:
        text = line.decode()
        value = _DECODER.decode(text)
        if "\\u" in text:  # a lone surrogate is in no text that Arrow can hold
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8: byte 0x{line[error.start]:02x} at {error.start}") from None
    except UnicodeEncodeError:
        raise BadLine("not JSON: half of a surrogate pair in a string") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos}") from None
    except RecursionError:
        raise TooDeep("not JSON that can be read: nested too deeply") from None
    if not isinstance(value, dict):
        raise BadLine(f"not a JSON object but {_kind(value)}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise BadLine(f"not JSON: {name}")


_DECODER: Final = json.JSONDecoder(parse_int=Integer, parse_float=Real, parse_constant=_refuse_constant)


def _reader(field: pa.Field, path: Path, numeric_timestamps: set[Path]) -> Read:
    """Reads one column, or one member inside it."""
    read = _value_reader(field, path, numeric_timestamps)
    name = ".".join(path)

    def nullable(value: Any) -> Any:
        return None if value is None or value is _MISSING else read(value)

    def required(value: Any) -> Any:
        if value is None or value is _MISSING:
            raise BadLine(f"column {name}: {'null' if value is None else 'missing'}, and the column is NOT NULL")
        return read(value)

    return nullable if field.nullable else required


def _value_reader(field: pa.Field, path: Path, numeric_timestamps: set[Path]) -> Read:
    kind, name = field.type, ".".join(path)
    if is_json(field):
        return _json_text
    if pa.types.is_struct(kind):
        return _struct_reader(kind, path, numeric_timestamps)
    if pa.types.is_list(kind):
        return _list_reader(kind, path, numeric_timestamps)
    if pa.types.is_timestamp(kind):
        return _timestamp_reader(kind, path, numeric_timestamps)
    read = _scalar_reader(kind, name)

    def checked(value: Any) -> Any:
        try:
            return read(value)
        except (ValueError, TypeError, InvalidOperation, binascii.Error, pa.ArrowException):
            raise _mismatch(name, value, kind) from None

    return checked


def _scalar_reader(kind: pa.DataType, name: str) -> Read:
    if pa.types.is_boolean(kind):
        return lambda value: _expect(value, bool)
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        low, high = (
            (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)
        )
        return lambda value: _in_range(_whole(value), low, high)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return lambda value: _finite(_cast(_expect(value, Integer, Real), kind))
    if pa.types.is_decimal(kind):
        return lambda value: _cast(_expect(value, Integer, Real, str), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value: _expect(value, str)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda value: binascii.a2b_base64(_expect(value, str), strict_mode=True)
    if pa.types.is_date32(kind):
        return lambda value: pa.scalar(_expect(value, str)).cast(kind).value
    if kind == pa.time64("us"):
        return lambda value: times_of(pa.array([_expect(value, str)]))[0].value
    raise UnsupportedType(f"column {name}: JSON cannot hold {kind}")


def _struct_reader(kind: pa.DataType, path: Path, numeric_timestamps: set[Path]) -> Read:
    members = [(member.name, _reader(member, (*path, member.name), numeric_timestamps)) for member in kind]

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(".".join(path), value, kind)
        return {name: read_member(value.get(name, _MISSING)) for name, read_member in members}

    return read


def _list_reader(kind: pa.DataType, path: Path, numeric_timestamps: set[Path]) -> Read:
    read_item = _reader(kind.value_field, (*path, "[]"), numeric_timestamps)

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _mismatch(".".join(path), value, kind)
        return [read_item(item) for item in value]

    return read


def _timestamp_reader(kind: pa.DataType, path: Path, numeric_timestamps: set[Path]) -> Read:
    if kind.unit != "us":
        raise UnsupportedType(f"column {'.'.join(path)}: JSON cannot hold {kind}, only timestamps in microseconds")

    def read(value: Any) -> int:
        try:
            if isinstance(value, Integer | Real):
                numeric_timestamps.add(path)
                return _in_range(_whole(value) * 1000, -(1 << 63), (1 << 63) - 1)
            numeric_timestamps.discard(path)
            return _timestamp(_expect(value, str))
        except (ValueError, TypeError, pa.ArrowException):
            raise _mismatch(".".join(path), value, kind) from None

    return read


def _timestamp(text: str) -> int:
    """Microseconds since 1970 in UTC; a fraction is cut after six digits."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError
    date, time, fraction, zone = match.groups()
    microseconds = _naive_timestamp(date, time) + int((fraction or "")[:6].ljust(6, "0"))
    return _in_range(microseconds - _offset_minutes(zone) * 60_000_000, -(1 << 63), (1 << 63) - 1)


def _naive_timestamp(date: str, time: str | None) -> int:
    naive = f"{date} {time}" if time else date
    if date.startswith("0000"):  # a year that Arrow knows and Python does not
        microseconds: int = pa.scalar(naive).cast(pa.timestamp("us")).value
        return microseconds
    return (datetime.fromisoformat(naive) - _EPOCH) // timedelta(microseconds=1)


def _offset_minutes(zone: str | None) -> int:
    match = _ZONE.fullmatch(zone or "")
    if match is None:
        return 0
    sign, hours, minutes = match[1], int(match[2]), int(match[3] or 0)
    if hours > 23 or minutes > 59:
        raise ValueError
    return (hours * 60 + minutes) * (-1 if sign == "-" else 1)


def _whole(value: Any) -> int:
    """A JSON number that is whole, however it is written: 1, 1.0, 1e3."""
    if isinstance(value, Integer):
        return int(value)
    number = Decimal(_expect(value, Real))
    if number.adjusted() > _LARGEST_EXPONENT or number != number.to_integral_value():
        raise ValueError
    return int(number)


def _expect(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError
    return value


def _in_range(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value


def _cast(digits: str, kind: pa.DataType) -> Any:
    """By Arrow's own parser, which is the one of the vectorised decoder."""
    array = pa.array([str(digits)]).cast(kind)
    array.validate(full=True)  # a cast gives decimals of more digits than their type has
    return array[0].as_py()


def _json_text(value: Any) -> str:
    """A JSON value as text, without spaces and with its numbers as they came."""
    if isinstance(value, Integer | Real):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(key)}:{_json_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _mismatch(name: str, value: Any, kind: pa.DataType) -> BadLine:
    shown = f"{_kind(value)}" if isinstance(value, dict | list) else shorten(_json_text(value))
    return BadLine(f"column {name}: {shown} is not {_sql_name(kind)}")


def _kind(value: Any) -> str:
    match value:
        case Integer() | Real():
            return "a number"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case None:
            return "null"
        case dict():
            return "an object"
        case _:
            return "an array" if isinstance(value, Sequence) else "a value"


_SQL_NAMES: Final = (
    (pa.types.is_boolean, "a BOOLEAN"),
    (pa.types.is_int64, "a BIGINT"),
    (pa.types.is_int32, "an INT"),
    (pa.types.is_int16, "a SMALLINT"),
    (pa.types.is_int8, "a TINYINT"),
    (pa.types.is_unsigned_integer, "an unsigned integer that fits"),
    (pa.types.is_float64, "a DOUBLE"),
    (pa.types.is_float32, "a FLOAT"),
    (pa.types.is_string, "a TEXT"),
    (pa.types.is_large_string, "a TEXT"),
    (pa.types.is_binary, "a BYTEA in base64"),
    (pa.types.is_large_binary, "a BYTEA in base64"),
    (pa.types.is_date, "a DATE"),
    (pa.types.is_time, "a TIME"),
    (pa.types.is_timestamp, "a TIMESTAMP"),
    (pa.types.is_struct, "a STRUCT"),
    (pa.types.is_list, "an array"),
)


def _sql_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"a DECIMAL({kind.precision}, {kind.scale})"
    return next(name for is_kind, name in _SQL_NAMES if is_kind(kind))
