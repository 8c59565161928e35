"""The vectorised decoder takes what a line means, whatever its neighbours are."""

# ruff: noqa: DTZ001 - a TIMESTAMP has no zone
from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.errors import UnsupportedType
from penstock.connectors.formats.json import MAX_PAYLOAD_BYTES, JsonDecoder
from penstock.connectors.formats.json_line import JSON_METADATA, BadLine, RowReader


def column(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("a", kind, nullable=nullable)])


def crowded(line: bytes) -> bytes:
    """A line among enough others for the vectorised way."""
    others = b'{"a":null}\n' * 20
    return others + line + b"\n" + others


def read_alone(kind: pa.DataType, text: str) -> Any:
    """The value of a column, read in a block of its own kind: the vectorised way if it takes it."""
    line = f'{{"a":{text}}}\n'.encode()
    decoded = JsonDecoder(column(kind)).decode(line * 20)
    values = decoded.rows.column(0).to_pylist()
    if decoded.rejected:
        assert not values
        return decoded.rejected[0].reason
    assert len(values) == 20
    assert len({repr(value) for value in values}) == 1
    return values[0]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.bool_(), "true", True),
        (pa.int8(), "-128", -128),
        (pa.int16(), "32767", 32767),
        (pa.int32(), "-2147483648", -2147483648),
        (pa.int64(), "9223372036854775807", 9223372036854775807),
        (pa.int64(), "1.0", 1),
        (pa.int64(), "1e3", 1000),
        (pa.int64(), "-0", 0),
        (pa.uint8(), "255", 255),
        (pa.uint64(), "18446744073709551615", 18446744073709551615),
        (pa.float32(), "0.5", 0.5),
        (pa.float64(), "1", 1.0),
        (pa.float64(), "1.7976931348623157e308", 1.7976931348623157e308),
        (pa.decimal128(20, 4), "1234567890123456.7891", Decimal("1234567890123456.7891")),
        (pa.decimal128(20, 4), '"1.5"', Decimal("1.5")),
        (pa.decimal128(38, 0), "99999999999999999999999999999999999999", Decimal("9" * 38)),
        (pa.string(), r'"a\"\\\n\u0000\ud83d\ude00é"', 'a"\\\n\x00😀é'),
        (pa.large_string(), '"x"', "x"),
        (pa.binary(), '"aGk="', b"hi"),
        (pa.date32(), '"2023-09-18"', date(2023, 9, 18)),
        (pa.time64("us"), '"14:23:10"', time(14, 23, 10)),
        (pa.time64("us"), '"14:23:10.123456"', time(14, 23, 10, 123456)),
        (pa.timestamp("us"), '"2023-09-18T14:23:10"', datetime(2023, 9, 18, 14, 23, 10)),
        (pa.timestamp("us"), '"2023-09-18 14:23:10"', datetime(2023, 9, 18, 14, 23, 10)),
        (pa.timestamp("us"), '"2023-09-18T14:23:10Z"', datetime(2023, 9, 18, 14, 23, 10)),
        (pa.timestamp("us"), '"2023-09-18T14:23:10.5+02:00"', datetime(2023, 9, 18, 12, 23, 10, 500000)),
        (pa.timestamp("us"), '"2023-09-18T14:23:10.123456789"', datetime(2023, 9, 18, 14, 23, 10, 123456)),
        (pa.timestamp("us"), "1695046990123", datetime(2023, 9, 18, 14, 23, 10, 123000)),
        (pa.timestamp("us", "UTC"), '"2023-09-18T14:23:10-01:00"', datetime(2023, 9, 18, 15, 23, 10, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "1695046990000", datetime(2023, 9, 18, 14, 23, 10, tzinfo=UTC)),
        (pa.list_(pa.int64()), "[1,null,2]", [1, None, 2]),
        (pa.list_(pa.timestamp("us")), "[0]", [datetime(1970, 1, 1)]),
        (pa.list_(pa.binary()), '["aGk=",null]', [b"hi", None]),
        (pa.struct([("x", pa.int64()), ("y", pa.date32())]), '{"y":"1970-01-02"}', {"x": None, "y": date(1970, 1, 2)}),
        (pa.list_(pa.struct([("x", pa.string())])), '[{"x":"a"},null,{}]', [{"x": "a"}, None, {"x": None}]),
        (pa.struct([("x", pa.struct([("y", pa.int64())]))]), '{"x":null}', {"x": None}),
    ],
)  # fmt: skip
def test_a_value_is_read_as_its_column_says(kind: pa.DataType, text: str, value: object) -> None:
    assert read_alone(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.bool_(), "1"),
        (pa.bool_(), '"true"'),
        (pa.int8(), "128"),
        (pa.int64(), '"abc"'),
        (pa.int64(), '"12"'),
        (pa.int64(), "1.5"),
        (pa.int64(), "true"),
        (pa.int64(), "[1]"),
        (pa.int64(), "9223372036854775808"),
        (pa.int64(), "1e999999999"),
        (pa.uint16(), "-1"),
        (pa.float32(), "1e39"),
        (pa.float64(), "1e400"),
        (pa.float64(), '"1.5"'),
        (pa.decimal128(10, 2), "1.234"),
        (pa.decimal128(4, 2), "123.4"),
        (pa.decimal128(4, 2), '"x"'),
        (pa.string(), "12"),
        (pa.string(), "{}"),
        (pa.binary(), '"not base64"'),
        (pa.binary(), '"aGk"'),
        (pa.date32(), '"2023-02-30"'),
        (pa.date32(), "19000"),
        (pa.time64("us"), '"25:00:00"'),
        (pa.time64("us"), "1"),
        (pa.timestamp("us"), '"yesterday"'),
        (pa.timestamp("us"), '"2023-13-01T00:00:00"'),
        (pa.timestamp("us"), '"2023-01-01T00:00:00+25:00"'),
        (pa.timestamp("us"), "1e300"),
        (pa.timestamp("us"), "9223372036854775807"),
        (pa.timestamp("us"), "true"),
        (pa.list_(pa.int64()), "1"),
        (pa.list_(pa.int64()), '[1,"x"]'),
        (pa.struct([("x", pa.int64())]), "[]"),
        (pa.struct([("x", pa.int64())]), '{"x":"q"}'),
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]), "{}"),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), "[1,null]"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_column(kind: pa.DataType, text: str) -> None:
    assert str(read_alone(kind, text)).startswith("column a")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1,"b":"\xff"}', "not UTF-8: byte 0xff at 12"),
        (b'{"a":1', "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b'{"a":1}x', "not JSON"),
        (b'{"a":1}{"a":2}', "not JSON"),
        (b'{"a":1} {"a":2}', "not JSON"),
        (b'{"a":1,"b":NaN}', "not JSON: NaN"),
        (b'{"a":1,"b":-Infinity}', "not JSON: -Infinity"),
        (b'{"a":1,"b":Inf}', "not JSON"),
        (b'{"a":1,"b":"\\ud800"}', "not JSON: half of a surrogate pair"),
        (b'{"a":1,"b":"\t"}', "not JSON"),
        (b'{"a":1}\x00', "not JSON"),
        (b"null", "not a JSON object but null"),
        (b"[1]", "not a JSON object but an array"),
        (b"3", "not a JSON object but a number"),
        (b'"x"', "not a JSON object but a string"),
        (b"true", "not a JSON object but a boolean"),
        (b'{"a":"x"}', 'column a: "x" is not a BIGINT'),
    ],
)
def test_a_bad_line_is_refused_alone_with_its_reason(line: bytes, reason: str) -> None:
    decoded = JsonDecoder(column(pa.int64())).decode(crowded(line), first_line=100)
    assert decoded.rows.num_rows == 40
    [bad] = decoded.rejected
    assert bad.line == 120
    assert bad.reason.startswith(reason)
    assert bad.payload == line


def test_an_object_over_two_lines_is_no_row() -> None:
    decoded = JsonDecoder(column(pa.int64())).decode(crowded(b'{"a":1} {"a":2}\n{"a":\n1}'))
    assert decoded.rows.num_rows == 40
    assert [bad.line for bad in decoded.rejected] == [21, 22, 23]


def test_nan_in_a_string_is_just_text() -> None:
    decoded = JsonDecoder(column(pa.string())).decode(crowded(b'{"a":"NaN Inf"}'))
    assert decoded.rows.column(0)[20].as_py() == "NaN Inf"


@pytest.mark.parametrize("line", [b"{}", b'{"a":null}'])
def test_null_or_missing_in_a_not_null_column_is_refused(line: bytes) -> None:
    block = b'{"a":1}\n' * 30 + line + b"\n" + b'{"a":2}\n' * 30
    decoded = JsonDecoder(column(pa.int64(), nullable=False)).decode(block)
    assert decoded.rows.column(0).to_pylist() == [1] * 30 + [2] * 30
    [bad] = decoded.rejected
    assert (bad.line, bad.reason.endswith("NOT NULL")) == (31, True)


def test_the_last_of_two_equal_keys_counts() -> None:
    decoded = JsonDecoder(column(pa.int64())).decode(crowded(b'{"a":1,"a":2}'))
    assert decoded.rows.column(0)[20].as_py() == 2


def test_empty_lines_are_skipped_and_counted() -> None:
    decoded = JsonDecoder(column(pa.int64())).decode(b'\n{"a":1}\r\n  \n\r\n{"a":2}')
    assert decoded.rows.column(0).to_pylist() == [1, 2]
    assert decoded.row_lines.tolist() == [2, 5]
    assert decoded.row_offsets.tolist() == [1, 15]
    assert (decoded.line_count, decoded.rejected) == (5, ())


def test_no_bytes_are_no_rows() -> None:
    decoded = JsonDecoder(column(pa.int64())).decode(b"")
    assert (decoded.rows.num_rows, decoded.line_count) == (0, 0)


def test_rows_are_counted_when_no_column_is_wanted() -> None:
    decoded = JsonDecoder(pa.schema([])).decode(b'{"a":1}\n' * 40 + b"{\n" + b'{"b":1}\n')
    assert (decoded.rows.num_rows, len(decoded.rejected)) == (41, 1)


def test_a_line_over_the_limit_is_refused_and_its_payload_cut() -> None:
    long = b'{"a":1,"b":"' + b"x" * 200_000 + b'"}'
    decoded = JsonDecoder(column(pa.int64()), max_line_bytes=100_000).decode(crowded(long))
    [bad] = decoded.rejected
    assert (bad.line, bad.reason, len(bad.payload)) == (21, "longer than 100000 bytes", MAX_PAYLOAD_BYTES)
    assert decoded.rows.num_rows == 40


def test_a_line_of_ten_megabytes_is_a_row() -> None:
    text = "x" * 10_000_000
    decoded = JsonDecoder(column(pa.string())).decode(crowded(json.dumps({"a": text}).encode()))
    assert decoded.rows.column(0)[20].as_py() == text


def test_a_long_value_is_never_whole_in_a_reason() -> None:
    decoded = JsonDecoder(column(pa.int64())).decode(json.dumps({"a": "x" * 10_000_000}).encode())
    assert len(decoded.rejected[0].reason) < 200


@pytest.mark.parametrize("others", [b"", b'{"a":null}\n' * 40, b'{"a":"x"}\n' * 40])
def test_deep_nesting_has_the_same_result_among_good_and_bad_neighbours(others: bytes) -> None:
    deep = b'{"b":' + b"[" * 100_000 + b"]" * 100_000 + b',"a":1}\n'
    decoded = JsonDecoder(column(pa.int64())).decode(others + deep)
    assert decoded.rows.column(0).to_pylist()[-1] == 1


def test_json_columns_hold_the_value_as_it_came() -> None:
    schema = pa.schema([pa.field("a", pa.string(), metadata=JSON_METADATA), pa.field("b", pa.int64())])
    line = b'{"a":{"x": [1.50, 12345678901234567890.123, "\xc3\xa9\\n", null, true]}, "b": 1}\n'
    decoded = JsonDecoder(schema).decode(line * 30 + b'{"a":null,"b":2}\n{"a":"s","b":"x"}\n')
    values = decoded.rows.column(0).to_pylist()
    assert values[:30] == ['{"x":[1.50,12345678901234567890.123,"é\\n",null,true]}'] * 30
    assert values[30] is None
    assert len(decoded.rejected) == 1


def test_timestamps_that_change_their_form_are_all_read() -> None:
    decoder = JsonDecoder(column(pa.timestamp("us")))
    text, millis = b'{"a":"1970-01-01T00:00:01"}\n' * 50, b'{"a":1000}\n' * 50
    for block in (text, millis, text, millis + text, text + millis + text):
        decoded = decoder.decode(block)
        assert set(decoded.rows.column(0).to_pylist()) == {datetime(1970, 1, 1, 0, 0, 1)}
        assert decoded.rows.num_rows == block.count(b"\n")


def test_a_type_that_json_cannot_hold_is_refused_before_any_line() -> None:
    with pytest.raises(UnsupportedType, match="column a"):
        JsonDecoder(column(pa.duration("us")))


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("small", pa.int8()),
        pa.field("ratio", pa.float64()),
        pa.field("exact", pa.decimal128(12, 3)),
        pa.field("text", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("clock", pa.time64("us")),
        pa.field("at", pa.timestamp("us")),
        pa.field("flag", pa.bool_()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("inner", pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us"))])),
    ]
)


def reference(lines: list[bytes]) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    """What the lines mean, one by one."""
    reader, good, bad = RowReader(SCHEMA, set()), [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip(b" \t\r"):
            continue
        try:
            good.append(reader.read(line.removesuffix(b"\r")))
        except BadLine as error:
            bad.append((number, str(error)))
    return good, bad


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "at", "id"]), inner, max_size=3),
    max_leaves=4,
)
stamps = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))
timestamps = st.one_of(
    stamps.map(lambda value: value.isoformat()),
    stamps.map(lambda value: value.isoformat(" ", "seconds")),
    stamps.map(lambda value: value.isoformat() + "Z"),
    stamps.map(lambda value: value.isoformat(timespec="milliseconds") + "+05:30"),
    st.integers(-(10**15), 10**15),
    st.sampled_from(["2023-01-01", "2023-01-01T10", "2023-01-01T10:11Z", "0000-01-01T00:00:00"]),
    st.sampled_from(["2023-01-01T10:11:12.123456789", "2023-01-01T10:11:60", "2023-01-01Z", "2023-1-1"]),
)
good_objects = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "small": st.integers(-128, 127) | st.none(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30),
        "exact": st.decimals(-(10**8), 10**8, places=3, allow_nan=False).map(str) | st.integers(-(10**9), 10**9),
        "text": st.text(max_size=8),
        "raw": st.sampled_from(["", "aGk=", "////", "AA=="]),
        "day": st.dates().map(lambda value: value.isoformat()),
        "clock": st.times().map(lambda value: value.isoformat()),
        "at": timestamps,
        "flag": st.booleans(),
        "tags": st.lists(st.text(max_size=3) | st.none(), max_size=3),
        "inner": st.none() | st.fixed_dictionaries({"x": st.integers(0, 9)}, optional={"at": timestamps}),
        "unwanted": json_values,
    },
)  # fmt: skip
odd_objects = st.dictionaries(st.sampled_from(SCHEMA.names), json_values, max_size=4)
insertions = st.sampled_from([b"", b"}", b",", b"\xff", b"\x00", b"]", b'"', b"\\", b"{}", b"1e5"])
corner_cases = st.sampled_from(
    [
        b"",
        b"  ",
        b"null",
        b"[]",
        b' {"id":1}',
        b'{"id":1}\r',
        b'{"id":1} {"id":2}',
        b'\xef\xbb\xbf{"id":1}',
        b'{"id":1,"id":2}',
        b'{"id":null,"id":2}',
        b'{"id":1,"inner":{"x":1,"x":2}}',
        b'{"id":01}',
        b'{"id":1,"ratio":NaN}',
        b'{"id":1,"ratio":1e999}',
        b'{"id":1,"at":1e5}',
        b'{"id":1,"small":1.0}',
        b'{"id":1,"exact":1234567890.5}',
    ]
)


@st.composite
def lines_of_all_kinds(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 19))
    if kind < 14:
        separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
        text = json.dumps(draw(good_objects), ensure_ascii=draw(st.booleans()), separators=separators)
        return text.encode("utf-8", "surrogatepass")
    if kind < 16:
        return json.dumps({"id": 1, **draw(odd_objects)}).encode()
    if kind == 16:
        line = json.dumps(draw(good_objects)).encode()
        cut = draw(st.integers(0, len(line)))
        return line[:cut] + draw(insertions) + line[cut:]
    if kind == 17:
        line = json.dumps(draw(good_objects)).encode()
        return line[: draw(st.integers(0, len(line)))]
    if kind == 18:
        return draw(st.binary(max_size=20)).replace(b"\n", b"")
    return draw(corner_cases)


@settings(max_examples=250, deadline=None)
@given(st.lists(lines_of_all_kinds(), max_size=60), st.integers(0, 60))
def test_a_block_is_what_its_lines_are_one_by_one(lines: list[bytes], copies: int) -> None:
    lines = lines + [b'{"id":7,"text":"filler"}'] * copies
    decoded = JsonDecoder(SCHEMA).decode(b"".join(line + b"\n" for line in lines))
    good, bad = reference(lines)
    expected = [pa.array([row[i] for row in good], field.type) for i, field in enumerate(SCHEMA)]
    assert decoded.rows.num_rows == len(good)
    for array, wanted in zip(decoded.rows.columns, expected, strict=True):
        assert array.equals(wanted)
    assert [(row.line, row.reason) for row in decoded.rejected] == bad
    assert decoded.line_count == len(lines)
    decoded.rows.validate(full=True)
