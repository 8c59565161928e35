"""Columns that a query passes on stay in Python, and its rows are those of a query whose columns all cross."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark import Engine, FragmentSpec, Mode
from penstock.spark.testing import assert_same_rows

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("k", pa.int32()),
        ("x", pa.float64()),
        ("text", pa.large_string()),
        ("small", pa.uint8()),
        ("amount", pa.decimal128(9, 2)),
        ("at", pa.timestamp("ms")),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("inner", pa.struct([("p", pa.int32()), ("q", pa.string())])),
        ("outer", pa.struct([("a", pa.struct([("b", pa.uint16()), ("c", pa.timestamp("ms"))]))])),
    ]
)
QUERIES = {
    "computed": "SELECT text, k + 1 AS k1, tags, id, text AS again FROM rows",
    "literal": "SELECT 7 AS seven, small, kind FROM rows",
    "filtered": "SELECT id, text, amount, at, inner FROM rows WHERE k % 3 = 1",
    "filtered and computed": """
        SELECT upper(text) AS u, text, x * 2 AS x2, tags, small FROM rows WHERE x > 0 OR k IS NULL
    """,
    "nothing passes": "SELECT id, text FROM rows WHERE false",
    "first of a key": """
        SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC, id) AS place FROM rows)
        WHERE place <= 2
    """,
    "over": "SELECT id, text, sum(x) OVER (PARTITION BY k ORDER BY id) AS total, kind FROM rows",
    "field of a struct": "SELECT inner.p AS p, inner, id FROM rows WHERE inner.q IS NOT NULL",
    "fields alone": "SELECT inner.q AS q, inner.p AS p, outer.a.b AS b, outer.a AS a, x FROM rows",
    "fields of fields": "SELECT a.b + 1 AS b1, a.b AS b, a.c AS c FROM (SELECT outer.a AS a FROM rows) WHERE a.b > 0",
    "all columns": "SELECT * FROM rows",
}
_VALUES = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(-3, 5),
        "x": st.none() | st.floats(-4, 4, allow_nan=False),
        "text": st.none() | st.text(max_size=5),
        "small": st.none() | st.integers(0, 255),
        "amount": st.none() | st.decimals(-1000, 1000, places=2).map(Decimal),
        "at": st.none() | st.integers(-(10**12), 10**12),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3),
        "kind": st.none() | st.sampled_from(["a", "b"]),
        "inner": st.none()
        | st.fixed_dictionaries({"p": st.none() | st.integers(0, 9), "q": st.none() | st.text(max_size=2)}),
        "outer": st.none()
        | st.fixed_dictionaries(
            {
                "a": st.none()
                | st.fixed_dictionaries({"b": st.none() | st.integers(0, 9), "c": st.none() | st.integers(0, 10**12)})
            }
        ),
    }
)


def batches_of(sizes: list[int], values: list[dict[str, object]]) -> list[pa.RecordBatch]:
    """Values, dealt to batches of so many rows, again and again."""
    found, number = [], 0
    for size in sizes:
        rows = [{"id": number + at, **values[(number + at) % len(values)]} for at in range(size)]
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in ROWS]
        found.append(pa.RecordBatch.from_arrays(columns, schema=ROWS))
        number += size
    return found


@pytest.mark.parametrize("name", QUERIES)
@given(sizes=st.lists(st.integers(0, 40), max_size=4), values=st.lists(_VALUES, min_size=1, max_size=12))
@settings(max_examples=12)
async def test_rows_are_those_of_a_query_whose_columns_all_cross(
    engine: Engine, name: str, sizes: list[int], values: list[dict[str, object]]
) -> None:
    batches = batches_of(sizes, values)
    expected, actual = [await result(engine, QUERIES[name], mode, batches) for mode in (Mode.JOB, Mode.DIRECT)]
    assert_same_rows(expected, actual, ordered=False)


async def result(engine: Engine, sql: str, mode: Mode, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    async with await engine.plan(FragmentSpec(sql, {"rows": ROWS}, mode=mode)) as fragment:
        (rows,) = await fragment.run(batches)
    return rows


@given(values=st.lists(_VALUES, min_size=1, max_size=12))
@settings(max_examples=12)
async def test_rows_of_each_partition_are_those_that_it_would_get(
    engine: Engine, values: list[dict[str, object]]
) -> None:
    batches = batches_of([50, 7], values)
    sql = "SELECT text, k, x + 1 AS x1, inner FROM rows WHERE x > -2"
    found = []
    for mode in (Mode.JOB, Mode.DIRECT):
        spec = FragmentSpec(sql, {"rows": ROWS}, partition_by=("k",), partitions=3, mode=mode)
        async with await engine.plan(spec) as fragment:
            found.append(await fragment.run(batches))
    for expected, actual in zip(*found, strict=True):
        assert_same_rows(expected, actual, ordered=False)


async def test_order_is_that_of_the_input(engine: Engine) -> None:
    batches = batches_of([40_000, 30_000, 70_000], [{"k": 1, "text": "a"}, {"k": 2, "text": None}])
    rows = await result(engine, "SELECT id, text, k * 2 AS k2 FROM rows WHERE id % 5 < 3", Mode.DIRECT, batches)
    assert rows["id"].to_pylist() == [number for number in range(140_000) if number % 5 < 3]
    assert rows["k2"].to_pylist() == [2 + number % 2 * 2 for number in range(140_000) if number % 5 < 3]


async def test_columns_that_pass_where_no_row_is_dropped_are_not_copied(engine: Engine) -> None:
    (rows,) = batches_of([1000], [{"k": 1, "text": "a"}])
    for condition in ("id >= 0", "k = 1"):
        (kept,) = [await result(engine, f"SELECT id, k + 1 AS k1 FROM rows WHERE {condition}", Mode.DIRECT, [rows])]
        assert kept["id"].buffers()[1].address == rows["id"].buffers()[1].address


@pytest.mark.parametrize("read", ["rows", "others"])
async def test_a_query_may_read_one_of_several_inputs(engine: Engine, read: str) -> None:
    batches = batches_of([20], [{"k": 1, "text": "a"}, {"k": 2, "text": None}])
    spec = FragmentSpec(f"SELECT id, text, k + 1 AS k1 FROM {read} WHERE k = 1", {"rows": ROWS, "others": ROWS})
    async with await engine.plan(spec) as fragment:
        (rows,) = await fragment.run(batches, batches)
    assert rows["id"].to_pylist() == list(range(0, 20, 2))
