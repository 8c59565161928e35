"""Lines that a query makes are those that `JsonEncoder` makes, byte for byte; other rows are left to it."""

# ruff: noqa: DTZ001 - a TIMESTAMP has no zone
from __future__ import annotations

import os
import random
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import INPUT
from penstock.compiler.passes.encode_lines import encode_lines, line_select
from penstock.compiler.plan import Query, Write
from penstock.compiler.testing import plan_of
from penstock.compiler.types import JSON_METADATA
from penstock.connectors.base import LINES, TIMESTAMP_COLUMN
from penstock.connectors.formats.json_encoder import JsonEncoder, memory_of
from penstock.spark import Engine, FragmentSpec, Mode, can_encode

EXAMPLES, NUMBERS = (4000, 2_000_000) if os.environ.get("PENSTOCK_TEST_FULL") else (80, 100_000)
TIMESTAMP = pa.field(TIMESTAMP_COLUMN, pa.timestamp("us"), nullable=False)
Format = Literal["rfc3339", "unix_millis"]


async def lines_of(
    engine: Engine, batch: pa.RecordBatch, timestamps: Format = "rfc3339", mode: Mode = Mode.DIRECT
) -> bytes:
    """The rows of a batch, `_timestamp` last, as a query encodes them."""
    sql = Query(line_select(batch.schema, timestamps)).sql
    async with await engine.plan(FragmentSpec(sql, {INPUT: batch.schema}, LINES, mode=mode)) as fragment:
        (encoded,) = await fragment.run(batch)
    assert encoded.schema.equals(LINES) and encoded.num_rows == batch.num_rows
    return b"".join(memory_of(encoded.column(0)))


def batch_of(fields: list[pa.Field], columns: list[Any]) -> pa.RecordBatch:
    times = pa.array([0] * len(columns[0]), TIMESTAMP.type)
    return pa.RecordBatch.from_arrays([*columns, times], schema=pa.schema([*fields, TIMESTAMP]))


async def check(engine: Engine, batch: pa.RecordBatch, timestamps: Format = "rfc3339") -> None:
    expected = JsonEncoder(batch.schema, timestamps).encode(batch)
    found = await lines_of(engine, batch, timestamps)
    if found != expected:  # said by the first line, not by megabytes of them
        assert found.splitlines() == expected.splitlines()
        pairs = zip(found.split(b"\n"), expected.split(b"\n"), strict=True)
        raise AssertionError(next(pair for pair in pairs if pair[0] != pair[1]))


NESTED = pa.struct(
    [
        pa.field("x", pa.int32(), nullable=False),
        ('na"me\n', pa.string()),
        ("at", pa.timestamp("us")),
        ("list", pa.list_(pa.struct([("z", pa.float32()), ("d", pa.decimal128(20, 12))]))),
    ]
)
NESTED_VALUES: list[Any] = [
    {"x": 1, 'na"me\n': 'a"', "at": datetime(2000, 1, 2, 3, 4, 5, 600), "list": [{"z": 0.1, "d": Decimal(2)}, None]},
    {"x": 2, 'na"me\n': None, "at": None, "list": [{"z": None, "d": None}]},
    {"x": 3, 'na"me\n': "", "at": datetime(1969, 1, 1), "list": []},
    {"x": 4, 'na"me\n': "ü", "at": None, "list": None},
]
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), []),
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127, 0]),
    (pa.int16(), [-32768, 9, 10, 99, 100]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1, -(2**63) + 1, *(10**n for n in range(19)), *(-(10**n) + 1 for n in range(19))]),
    (pa.float32(), [0.1, 1e20, 1e-7, 1e10, 9999999000.0, 16777216.0, 3.4028235e38, 1e-45, -0.0, float("nan")]),
    (
        pa.float64(),
        [
            0.1, 1e20, 1e-7, 1e-6, 1e10, 9999999999.5, 12345678901.25, 100.0, 123456.0, 0.001, 0.0005, 39.98, 2e23,
            5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740993.0, 1e23, 0.0, -0.0, -12.5,
            float("nan"), float("inf"), float("-inf"), 0.30000000000000004, 1 / 3, 9999999999.9999, 4.35, 0.0001,
        ],
    ),
    (pa.string(), ["", "a", "eight ch", "nine char", "é€😀", 'q"', "\\", "".join(map(chr, range(0x80))), "x" * 3000]),
    (pa.string(), ["long enough to be copied in words, with a quote \" here", "\x7f\u2028", '"' * 500, "\n1234567"]),
    (pa.binary(), [b"", b"a", b"ab", b"abc", bytes(range(256))]),
    (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29), date(1900, 3, 1), date(9999, 12, 31)]),
    (pa.time64("ns"), [time(0), time(23, 59, 59, 999999), time(1, 2, 3, 500000)]),
    (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2000, 2, 29, 1, 2, 3, 4), datetime(1969, 12, 31, 23, 59, 59, 1)]),
    (pa.timestamp("us", "UTC"), [datetime(2000, 2, 29, 1, 2, 3, 500000, UTC), datetime(9999, 12, 31, tzinfo=UTC)]),
    (pa.decimal128(38, 10), [Decimal(0), Decimal("0.0000001"), Decimal("-1.5"), Decimal("1234567890123456789.5")]),
    (pa.decimal128(5, 0), [Decimal(0), Decimal(-12345)]),
    (pa.decimal128(18, 18), [Decimal("1e-18"), Decimal("-0.000001"), Decimal("0.0000009")]),
    (pa.list_(pa.string()), [[], ["a", None, 'b"'], [None]]),
    (pa.list_(pa.list_(pa.timestamp("us"))), [[], [[datetime(2000, 1, 1)], [], None]]),
    (NESTED, NESTED_VALUES),
    (pa.list_(NESTED), [NESTED_VALUES, []]),
]  # fmt: skip


@pytest.mark.parametrize("timestamps", ["rfc3339", "unix_millis"])
@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda value: str(value)[:20])
async def test_values_of_every_type_are_those_of_the_encoder(
    engine: Engine, kind: pa.DataType, values: list[Any], timestamps: Format
) -> None:
    assert can_encode(kind)
    await check(engine, batch_of([pa.field("a", kind)], [pa.array([*values, None], kind)]), timestamps)
    if values:
        await check(engine, batch_of([pa.field("a", kind, False)], [pa.array(values, kind)]), timestamps)


async def test_names_and_columns_of_json_are_those_of_the_encoder(engine: Engine) -> None:
    fields = [
        pa.field('a"b\\c\nd', pa.int64()),
        pa.field("naïve 'quoted' `name`", pa.string(), metadata=dict(JSON_METADATA)),
    ]
    await check(engine, batch_of(fields, [pa.array([1, None]), pa.array(['{"x": [1, null]}', None])]))


async def test_a_job_writes_the_same_lines(engine: Engine) -> None:
    batch = batch_of([pa.field("a", NESTED), pa.field("b", pa.float64())], [pa.array(NESTED_VALUES, NESTED), [1.5] * 4])
    assert await lines_of(engine, batch, mode=Mode.JOB) == JsonEncoder(batch.schema).encode(batch)


async def test_a_table_of_many_columns_is_encoded(engine: Engine) -> None:
    fields = [pa.field(f"c{n}", pa.float64() if n % 2 else pa.string()) for n in range(600)]
    columns = [pa.array([n / 7, None]) if n % 2 else pa.array([None, str(n)]) for n in range(600)]
    await check(engine, batch_of(fields, columns))


async def test_numbers_of_any_bits_are_those_of_the_encoder(engine: Engine) -> None:
    chance = random.Random(1)
    doubles = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(NUMBERS)]
    doubles += [round(chance.uniform(-1e6, 1e6), chance.randrange(8)) for _ in range(NUMBERS)]
    doubles += [(1 + chance.randrange(-2, 3) * 2.0**-52) * 2.0**n for n in range(-1074, 1024)]
    doubles += [10.0**n for n in range(-323, 309)] + [n * 5e-324 for n in range(3000)]
    floats = [struct.unpack("f", chance.randbytes(4))[0] for _ in range(NUMBERS)] + [2.0**n for n in range(-149, 128)]
    await check(engine, batch_of([pa.field("a", pa.float64())], [pa.array(doubles)]))
    await check(engine, batch_of([pa.field("a", pa.float32())], [pa.array(floats, pa.float32())]))


texts = st.text(st.characters(codec="utf-8"), max_size=30)
scalars: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.string(), texts),
    (pa.binary(), st.binary(max_size=20)),
    (pa.date32(), st.dates()),
    (pa.time64("ns"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.decimal128(38, 12), st.decimals(-(10**20), 10**20, places=12)),
]


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type and its values."""
    kind, values = draw(st.sampled_from(scalars))
    match draw(st.sampled_from(["scalar", "list", "struct"])):
        case "list":
            return pa.list_(kind), st.lists(st.none() | values, max_size=3)
        case "struct":
            other, others = draw(st.sampled_from(scalars))
            members = st.fixed_dictionaries({"x": st.none() | values, "y": st.lists(st.none() | others, max_size=3)})
            return pa.struct([("x", kind), ("y", pa.list_(other))]), members
    return kind, values


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 10))
    fields, arrays = [], []
    for name in draw(st.lists(texts.filter(lambda text: text not in ("", TIMESTAMP_COLUMN)), min_size=1, max_size=5,
                              unique_by=str.casefold)):  # fmt: skip
        kind, values = draw(columns())
        fields.append(pa.field(name, kind))
        arrays.append(pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind))
    return batch_of(fields, arrays)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches(), st.sampled_from(["rfc3339", "unix_millis"]))
async def test_rows_of_any_schema_are_those_of_the_encoder(
    engine: Engine, batch: pa.RecordBatch, timestamps: Format
) -> None:
    await check(engine, batch, timestamps)


async def sink_schema(engine: Engine, columns: str, connector: str) -> pa.Schema:
    source = f"CREATE TABLE t ({columns}) WITH (connector = 'single_file', path = 'in', type = 'source');"
    sink = f"CREATE TABLE out WITH (connector = {connector}, type = 'sink'); INSERT INTO out SELECT * FROM t"
    plan, analyst = await plan_of(source + sink, engine)
    (write,) = (step for step in (await encode_lines(plan, analyst)).steps if isinstance(step.kind, Write))
    return write.schema


@pytest.mark.parametrize(
    ("columns", "connector", "is_encoded"),
    [
        ("a INT, j JSON", "'single_file', path = 'x'", True),
        ("a INT, m MAP<TEXT, INT>", "'single_file', path = 'x'", False),
        ("a INT, j JSON", "'stdout'", False),
        ("a INT, j JSON", "'blackhole'", False),
    ],
)
async def test_only_sinks_of_lines_get_lines_and_only_of_types_that_a_query_writes(
    engine: Engine, columns: str, connector: str, is_encoded: bool
) -> None:
    schema = await sink_schema(engine, columns, connector)
    assert schema.equals(LINES, check_metadata=True) is is_encoded
