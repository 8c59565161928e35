"""What is encoded is JSON that the standard library reads back to the same values."""

# ruff: noqa: DTZ001 - a TIMESTAMP has no zone
from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.connectors.errors import UnsupportedType
from penstock.connectors.formats.json import JsonDecoder, JsonEncoder
from penstock.connectors.formats.json_line import JSON_METADATA


def encoded(kind: pa.DataType, *values: Any, timestamp_format: Any = "rfc3339") -> list[str]:
    """The texts of the values of a column."""
    schema = pa.schema([("a", kind)])
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema)
    lines = JsonEncoder(schema, timestamp_format).encode(batch).decode().split("\n")
    assert lines.pop() == ""
    return [line.removeprefix('{"a":').removesuffix("}") for line in lines]


def test_a_timestamp_has_a_fraction_only_if_there_is_one() -> None:
    base = datetime(2023, 9, 18, 14, 23, 10)
    values = [base, base.replace(microsecond=500_000), base.replace(microsecond=1), None]
    texts = ['"2023-09-18T14:23:10"', '"2023-09-18T14:23:10.500"', '"2023-09-18T14:23:10.000001"', "null"]
    assert encoded(pa.timestamp("us"), *values) == texts
    for value, text in zip(values, texts, strict=True):
        assert encoded(pa.timestamp("us"), value) == [text]
    assert encoded(pa.timestamp("us"), values[0], values[1]) == texts[:2]


def test_a_timestamp_with_a_zone_is_written_in_utc() -> None:
    value = datetime(2023, 9, 18, 14, 23, 10, tzinfo=UTC)
    assert encoded(pa.timestamp("us", "Europe/Berlin"), value, None) == ['"2023-09-18T14:23:10Z"', "null"]


def test_timestamps_can_be_milliseconds_even_inside_structs() -> None:
    value = datetime(2023, 9, 18, 14, 23, 10, 123999)
    assert encoded(pa.timestamp("us"), value, None, timestamp_format="unix_millis") == ["1695046990123", "null"]
    kind = pa.struct([("t", pa.timestamp("us", "UTC"))])
    assert encoded(kind, {"t": value}, timestamp_format="unix_millis") == ['{"t":1695046990123}']


def test_a_timestamp_before_1970_is_rounded_down_to_its_millisecond() -> None:
    value = datetime(1969, 12, 31, 23, 59, 59, 999_999)
    assert encoded(pa.timestamp("us"), value, timestamp_format="unix_millis") == ["-1"]


def test_numbers_that_json_lacks_are_null() -> None:
    assert encoded(pa.float64(), math.nan, math.inf, -math.inf, 1.5) == ["null", "null", "null", "1.5"]
    assert encoded(pa.float32(), math.nan, 0.5) == ["null", "0.5"]


def test_a_length_of_time_is_in_seconds_as_iso_8601_has_it() -> None:
    values = [timedelta(), timedelta(seconds=10), timedelta(days=1, seconds=1.5), timedelta(microseconds=-1), None]
    texts = ['"PT0S"', '"PT10S"', '"PT86401.5S"', '"PT-0.000001S"', "null"]
    assert encoded(pa.duration("us"), *values) == texts
    longest = 2**63 - 1
    assert encoded(pa.duration("us"), longest, -longest) == ['"PT9223372036854.775807S"', '"PT-9223372036854.775807S"']
    assert encoded(pa.duration("ms"), timedelta(seconds=100)) == ['"PT100S"']


def test_decimals_keep_all_their_digits() -> None:
    values = [Decimal("12345678901234567890.12345678"), Decimal("-0.00000001"), Decimal(0), None]
    texts = encoded(pa.decimal128(38, 8), *values)
    assert [json.loads(text, parse_float=Decimal, parse_int=Decimal) for text in texts] == values


def test_the_other_scalars() -> None:
    assert encoded(pa.bool_(), True, False, None) == ["true", "false", "null"]
    assert encoded(pa.int64(), -(2**63), None) == [str(-(2**63)), "null"]
    assert encoded(pa.uint64(), 2**64 - 1) == [str(2**64 - 1)]
    assert encoded(pa.date32(), date(2023, 9, 18), None) == ['"2023-09-18"', "null"]
    assert encoded(pa.time64("us"), time(1, 2, 3), time(1, 2, 3, 500_000)) == ['"01:02:03"', '"01:02:03.500"']
    assert encoded(pa.time64("ns"), time(1, 2, 3, 4), None) == ['"01:02:03.000004"', "null"]
    assert encoded(pa.binary(), b"hi", b"", None) == ['"aGk="', '""', "null"]
    assert encoded(pa.null(), None) == ["null"]
    assert encoded(pa.dictionary(pa.int8(), pa.string()), "x", None) == ['"x"', "null"]


def test_lists_and_structs() -> None:
    assert encoded(pa.list_(pa.string()), ["a", 'b"'], [], None) == ['["a","b\\""]', "[]", "null"]
    assert encoded(pa.list_(pa.string()), ["a", None], [None], []) == ['["a",null]', "[null]", "[]"]
    assert encoded(pa.list_(pa.list_(pa.int64())), [[1], [], None], None) == ["[[1],[],null]", "null"]
    kind = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])
    texts = encoded(kind, {"x": 1, "y": {"z": "q"}}, {"x": None, "y": None}, None)
    assert texts == ['{"x":1,"y":{"z":"q"}}', '{"x":null,"y":null}', "null"]
    assert encoded(pa.struct([]), {}, None) == ["{}", "null"]


def test_a_map_is_an_object_with_its_keys_as_names() -> None:
    maps = pa.map_(pa.string(), pa.int64())
    assert encoded(maps, [("a", 1), ('b"', None)], [], None) == ['{"a":1,"b\\"":null}', "{}", "null"]
    assert encoded(pa.map_(pa.int32(), pa.string()), [(1, "x"), (-2, None)]) == ['{"1":"x","-2":null}']
    nested = pa.map_(pa.date32(), pa.list_(maps))
    assert encoded(nested, [(date(2024, 1, 2), [[("a", 1)], None, []])]) == ['{"2024-01-02":[{"a":1},null,{}]}']
    sliced = pa.array([[("a", 1)], [("b", 2), ("c", 3)], None, [("d", 4)]], maps).slice(1)
    schema = pa.schema([("a", maps)])
    lines = JsonEncoder(schema).encode(pa.RecordBatch.from_arrays([sliced], schema=schema)).splitlines()
    assert lines == [b'{"a":{"b":2,"c":3}}', b'{"a":null}', b'{"a":{"d":4}}']
    with pytest.raises(UnsupportedType, match="keys"):
        JsonEncoder(pa.schema([("a", pa.map_(pa.list_(pa.int32()), pa.int32()))]))


def test_json_columns_are_written_as_they_are() -> None:
    schema = pa.schema([pa.field("a", pa.string(), metadata=JSON_METADATA)])
    batch = pa.RecordBatch.from_arrays([pa.array(['{"x":[1]}', None])], schema=schema)
    assert JsonEncoder(schema).encode(batch) == b'{"a":{"x":[1]}}\n{"a":null}\n'


def test_the_timestamp_column_is_left_out() -> None:
    schema = pa.schema([("a", pa.int64()), (TIMESTAMP_COLUMN, pa.timestamp("us"))])
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([0], pa.timestamp("us"))], schema=schema)
    assert JsonEncoder(schema).encode(batch) == b'{"a":1}\n'
    only = pa.schema([(TIMESTAMP_COLUMN, pa.timestamp("us"))])
    assert JsonEncoder(only).encode(batch.select([TIMESTAMP_COLUMN])) == b"{}\n"


def test_no_rows_are_no_bytes() -> None:
    schema = pa.schema([("a", pa.int64())])
    assert JsonEncoder(schema).encode(pa.RecordBatch.from_pylist([], schema=schema)) == b""


def test_a_column_name_is_escaped() -> None:
    schema = pa.schema([('a"\n', pa.int64())])
    line = JsonEncoder(schema).encode(pa.RecordBatch.from_arrays([pa.array([1])], schema=schema))
    assert json.loads(line) == {'a"\n': 1}


def test_a_type_that_json_cannot_hold_is_refused_before_any_row() -> None:
    with pytest.raises(UnsupportedType, match="column a"):
        JsonEncoder(pa.schema([("a", pa.month_day_nano_interval())]))


SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("number", pa.int64()),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us")),
        ("inner", pa.struct([("x", pa.string()), ("y", pa.list_(pa.struct([("z", pa.float32())])))])),
    ]
)
texts = st.text(st.characters(codec="utf-8"), max_size=6)
rows = st.fixed_dictionaries(
    {
        "text": st.none() | texts,
        "raw": st.none() | st.binary(max_size=6),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.none() | st.lists(st.none() | texts, max_size=3),
        "at": st.none() | st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)),
        "inner": st.none()
        | st.fixed_dictionaries(
            {
                "x": st.none() | texts,
                "y": st.none()
                | st.lists(st.none() | st.fixed_dictionaries({"z": st.floats(width=32, allow_nan=False)}), max_size=2),
            }
        ),
    }
)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            unit = "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
            return value.isoformat(timespec=unit).removesuffix(".000")
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


def as_float32(value: Any) -> Any:
    return pa.scalar(value, pa.float64()).cast(pa.float32()).as_py()


@settings(max_examples=150, deadline=None)
@given(st.lists(rows, max_size=20), st.integers(0, 3))
def test_rows_are_read_back_by_the_standard_library_and_by_the_decoder(values: list[Any], skipped: int) -> None:
    batch = pa.RecordBatch.from_pylist(values, schema=SCHEMA).slice(skipped)
    data = JsonEncoder(SCHEMA).encode(batch)
    lines = data.split(b"\n")[:-1]
    expected = [plain(row) for row in batch.to_pylist()]
    for line, row in zip(lines, expected, strict=True):
        read = json.loads(line)
        for item in filter(None, (read["inner"] or {}).get("y") or []):
            item["z"] = as_float32(item["z"])
        assert read == row
    assert JsonDecoder(SCHEMA).decode(data).rows.num_rows == batch.num_rows
