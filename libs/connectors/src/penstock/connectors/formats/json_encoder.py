"""Rows to newline-delimited JSON, by joining texts of whole columns: no value passes through Python.

Timestamps and times have a fraction only if there is one, of 3 digits or, if these are not enough, of 6. A timestamp
with a zone is written in UTC with a Z. Decimals are numbers with all their digits. NaN and the infinities are null,
since JSON has none of them. Binary is base64. A null is written as null.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.connectors.errors import UnsupportedType
from penstock.connectors.formats.base64 import encode_column
from penstock.connectors.formats.json_line import is_json

TimestampFormat = Literal["rfc3339", "unix_millis"]

_MOST_BYTES: Final = 256 * 1024 * 1024
"""Of a batch that is encoded in one piece; an Arrow string array ends at 2 GiB, and text takes more room."""
_SECOND: Final = 1_000_000
_MILLISECOND: Final = 1_000
_MICROSECOND: Final = Decimal("0.000001")
_ESCAPES: Final = {byte: json.dumps(chr(byte))[1:-1] for byte in range(0x20)}


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of a column; null where the column is. `quoted`: still to be put in quotes."""

    values: Any
    quoted: bool = False


class JsonEncoder:
    """Encodes batches of one schema; `_timestamp` is left out."""

    def __init__(self, schema: pa.Schema, timestamp_format: TimestampFormat = "rfc3339") -> None:
        """Raises UnsupportedType for a column that JSON cannot hold."""
        self._timestamps_as_text = timestamp_format == "rfc3339"
        self._columns = [(index, f) for index, f in enumerate(schema) if f.name != TIMESTAMP_COLUMN]
        for _, column in self._columns:
            self._text(pa.array([], column.type), column)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """The rows as complete lines."""
        return b"".join(self.encode_pieces(batch))

    def encode_pieces(self, batch: pa.RecordBatch) -> list[memoryview]:
        """The rows as complete lines, in pieces of the memory that they were made in."""
        if batch.nbytes > _MOST_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            return [*self.encode_pieces(batch.slice(0, middle)), *self.encode_pieces(batch.slice(middle))]
        members = [(column, batch.column(index)) for index, column in self._columns]
        return memory_of(self._object(members, batch.num_rows, end="}\n"))

    def _object(self, members: list[tuple[pa.Field, Any]], count: int, end: str) -> Any:
        parts: list[Any] = []
        before = "{"
        for column, array in members:
            text = self._text(array, column)
            quote = '"' if text.quoted and not text.values.null_count else ""
            parts += [before + json.dumps(column.name, ensure_ascii=False) + ":" + quote, _literal(text)]
            before = quote + ","
        if not parts:
            return pa.repeat(pa.scalar("{" + end), count)
        return pc.binary_join_element_wise(*parts, before[:-1] + end, "")

    def _text(self, array: Any, column: pa.Field) -> _Text:
        kind = column.type
        if pa.types.is_dictionary(kind):
            return self._text(array.cast(kind.value_type), pa.field(column.name, kind.value_type))
        if pa.types.is_struct(kind):
            return self._struct(array, kind)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return self._list(array, kind)
        if pa.types.is_map(kind):
            return self._map(array, kind)
        if pa.types.is_timestamp(kind) and not self._timestamps_as_text:
            return _Text(_unix_millis(array).cast(pa.string()))
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            text = array.cast(pa.string())
            return _Text(text) if is_json(column) else _Text(_escaped(text), quoted=True)
        return _scalar_text(array, column)

    def _struct(self, array: Any, kind: pa.DataType) -> _Text:
        members = [(member, array.field(i)) for i, member in enumerate(kind)]
        text = self._object(members, len(array), end="}")
        return _Text(_null_where(array, text))

    def _list(self, array: Any, kind: pa.DataType) -> _Text:
        items = self._text(array.flatten(), kind.value_field)
        quote = '"' if items.quoted and not items.values.null_count else ""
        return _joined(array, _literal(items), f"[{quote}", f"{quote}]", quote)

    def _map(self, array: Any, kind: pa.MapType) -> _Text:
        """An object, whose names are the keys as text."""
        if pa.types.is_nested(kind.key_type):
            raise UnsupportedType(f"JSON cannot hold {kind}, since its keys are no names")
        entries = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        pairs = entries.flatten()
        names = self._text(pairs.field(0), kind.key_field).values
        values = self._text(pairs.field(1), kind.item_field)
        texts = pc.binary_join_element_wise('"', names, '":', _quoted(values), "")
        return _joined(entries, texts, "{", "}")


def _joined(array: Any, texts: Any, first: str, last: str, quote: str = "") -> _Text:
    """The texts of the items of each list, in brackets, and with quotes between them where they lack them."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths))]).astype(np.int32)
    between = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), f"{quote},{quote}")
    text = pc.binary_join_element_wise(first, between, last, "")
    if quote:
        text = pc.if_else(pc.equal(lengths, 0), first.removesuffix(quote) + last.removeprefix(quote), text)
    return _Text(_null_where(array, text))


def memory_of(text: Any) -> list[memoryview]:
    """The texts of a column, one behind the other as they are in its memory."""
    if not len(text):
        return []
    _, offsets, data = text.buffers()
    bounds = np.frombuffer(offsets, np.int32)[[text.offset, text.offset + len(text)]]
    return [memoryview(data)[bounds[0] : bounds[1]]]


def _literal(text: _Text) -> Any:
    """The text with null for nulls, and then also with its quotes."""
    return _quoted(text) if text.values.null_count else text.values


def _quoted(text: _Text) -> Any:
    values = pc.binary_join_element_wise('"', text.values, '"', "") if text.quoted else text.values
    return pc.fill_null(values, "null")


def _null_where(array: Any, text: Any) -> Any:
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string())) if array.null_count else text


def _scalar_text(array: Any, column: pa.Field) -> _Text:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return _Text(array.cast(pa.string()))
    if pa.types.is_floating(kind):
        finite = pc.is_finite(array)
        return _Text(pc.if_else(finite, array, pa.scalar(None, kind)).cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _Text(_timestamp_text(array, kind), quoted=True)
    if pa.types.is_date(kind):
        return _Text(array.cast(pa.string()), quoted=True)
    if pa.types.is_time64(kind):
        return _Text(_with_fraction(array.cast(pa.time64("us")), _clock_seconds), quoted=True)
    if pa.types.is_duration(kind):
        return _Text(_duration_text(array), quoted=True)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _Text(encode_column(array), quoted=True)
    raise UnsupportedType(f"column {column.name}: JSON cannot hold {kind}")


def _timestamp_text(array: Any, kind: pa.DataType) -> Any:
    text = _with_fraction(array.cast(pa.timestamp("us", kind.tz)), _iso_seconds)
    return text if kind.tz is None else pc.binary_join_element_wise(text, "Z", "")


def _duration_text(array: Any) -> Any:
    """As ISO 8601 has it, in seconds alone: PT90.5S, PT-1S."""
    micros = array.cast(pa.duration("us")).cast(pa.int64()).cast(pa.decimal128(19, 0))
    seconds = pc.multiply(micros, pa.scalar(_MICROSECOND)).cast(pa.string())
    trimmed = pc.utf8_rtrim(pc.utf8_rtrim(seconds, "0"), ".")
    return pc.binary_join_element_wise("PT", trimmed, "S", "")


def _iso_seconds(seconds: npt.NDArray[np.int64]) -> Any:
    return pc.replace_substring(pa.array(seconds, pa.timestamp("s")).cast(pa.string()), " ", "T", max_replacements=1)


def _clock_seconds(seconds: npt.NDArray[np.int64]) -> Any:
    return pa.array(seconds.astype(np.int32), pa.time32("s")).cast(pa.string())


def _with_fraction(array: Any, to_text: Callable[[npt.NDArray[np.int64]], Any]) -> Any:
    """Text of seconds, made once for a run of equal ones, as most streams have them, and of their fraction."""
    values = np.asarray(pc.fill_null(array.cast(pa.int64()), 0))
    seconds = values // _SECOND
    changes = np.diff(seconds, prepend=seconds[:1]) != 0
    text = to_text(np.append(seconds[:1], seconds[changes])).take(pa.array(np.cumsum(changes)))
    fraction = values - seconds * _SECOND
    if fraction.any():
        milliseconds = fraction // _MILLISECOND
        rest = fraction - milliseconds * _MILLISECOND
        first = _digits(".").take(pa.array(np.where(fraction == 0, 1000, milliseconds)))
        text = pc.binary_join_element_wise(text, first, _digits("").take(pa.array(np.where(rest == 0, 1000, rest))), "")
    return _null_where(array, text)


def _unix_millis(array: Any) -> Any:
    """Rounded down also before 1970, which a cast would not do."""
    microseconds = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    return pa.array(np.asarray(pc.fill_null(microseconds, 0)) // 1000, mask=np.asarray(array.is_null()))


def _escaped(text: Any) -> Any:
    """With backslashes before what cannot be in a JSON string as it is; most columns have nothing of it."""
    content = _content(text)
    if not ((content < 0x20) | (content == ord('"')) | (content == ord("\\"))).any():
        return text
    for plain in ("\\", '"'):
        text = pc.replace_substring(text, plain, "\\" + plain)
    for byte in np.unique(content[content < 0x20]).tolist():
        text = pc.replace_substring(text, chr(byte), _ESCAPES[byte])
    return text


def _content(text: Any) -> npt.NDArray[np.uint8]:
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)[[text.offset, text.offset + len(text)]]
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[1]]


@cache
def _digits(before: str) -> Any:
    """The texts of 0 to 999 in three digits, and of none at all."""
    return pa.array([*(f"{before}{number:03d}" for number in range(1000)), ""])
