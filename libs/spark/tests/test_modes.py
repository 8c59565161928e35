"""A query gives the same rows on the engine's own threads, as a Spark job, and as a job on a cluster."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from penstock.spark import DataError, Engine, FragmentSpec, Mode
from penstock.spark.standalone import cluster_settings, standalone_cluster

_START = datetime(2024, 2, 28, 23, 30)  # noqa: DTZ001 - timestamps without a zone are under test

FACTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("k", pa.int32()),
        ("g", pa.string()),
        ("x", pa.float64()),
        ("n", pa.decimal128(12, 2)),
        ("ok", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("s", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("st", pa.struct([("p", pa.int32()), ("q", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
NAMES = pa.schema(
    [("k", pa.int32()), ("name", pa.string()), ("w", pa.float64()), ("lo", pa.int64()), ("hi", pa.int64())]
)


def fact(i: int) -> dict[str, object]:
    """One row; every column but the first is null in some, and no two in the same."""
    row: dict[str, object] = {
        "k": i * 7 % 13,
        "g": "abcde"[i * i % 5],
        "x": (i * 37 % 101) / 8 - 4,
        "n": Decimal(i * 173 % 4001 - 2000).scaleb(-2),
        "ok": i % 3 != 1,
        "d": date(2024, 1, 1) + timedelta(days=i % 90),
        "ts": _START + timedelta(seconds=i * 13, microseconds=i),
        "s": f"item-{i % 20:02d} Größe {i * 31 % 50}",
        "tags": [f"t{j}" if j != 2 else None for j in range(i % 4)],
        "st": {"p": i % 6 or None, "q": f"q{i % 4}"},
        "m": [(f"m{j}", i * j if j else None) for j in range(i % 3)],
    }
    nulls = {name: None for offset, name in enumerate(row) if (i + offset) % 17 == 0}
    return {"id": i, **row, **nulls}


def name(i: int) -> dict[str, object]:
    row = {"k": i % 16, "name": f"name {i:02d}", "w": i / 4, "lo": i * 5, "hi": i * 5 + 12}
    return row | {column: None for offset, column in enumerate(row) if (i + offset) % 9 == 0}


def batches(rows: Sequence[dict[str, object]], schema: pa.Schema, size: int) -> list[pa.RecordBatch]:
    starts = range(0, len(rows), size)
    return [pa.RecordBatch.from_pylist(list(rows[start : start + size]), schema) for start in starts]


SCHEMAS = {"a": FACTS, "b": NAMES, "e": FACTS}
INPUTS = (
    batches([fact(i) for i in range(300)], FACTS, 90),
    batches([name(i) for i in range(40)], NAMES, 25),
    batches([], FACTS, 1),  # an input to which nothing came
)


@dataclass(frozen=True, slots=True)
class Case:
    """A query of `queries.sql`."""

    title: str
    sql: str
    ordered: bool = False
    empty: bool = False
    partition_by: tuple[str, ...] = ()

    def spec(self, mode: Mode) -> FragmentSpec:
        return FragmentSpec(self.sql, SCHEMAS, None, self.partition_by, 3 if self.partition_by else 1, mode)


def cases() -> Iterator[Case]:
    text = Path(__file__).with_name("queries.sql").read_text()
    for title, notes, sql in re.findall(r"^-- (\w+)(?:: (.+))?\n([^;]+);$", text, re.MULTILINE):
        columns = re.search(r"partition by (.+)", notes)
        yield Case(title, sql, "ordered" in notes, "empty" in notes, tuple(columns[1].split()) if columns else ())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster_engine(cluster: str) -> AsyncIterator[Engine]:
    async with await Engine.start(cluster_settings(cluster)) as engine:
        yield engine


async def results(engine: Engine, case: Case, mode: Mode) -> tuple[pa.RecordBatch, ...]:
    async with await engine.plan(case.spec(mode)) as fragment:
        return await fragment.run(*INPUTS)


def narrowed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(batch.to_pylist(), schema)


def close(one: Any, other: Any) -> bool:
    """Equal, but for what the order of a sum does to a float."""
    match one, other:
        case float(), float():
            return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(one) and math.isnan(other))
        case dict(), dict():
            return one.keys() == other.keys() and all(close(value, other[key]) for key, value in one.items())
        case (list(), list()) | (tuple(), tuple()):
            return len(one) == len(other) and all(map(close, one, other))
        case _:
            return type(one) is type(other) and bool(one == other)


def place(value: Any) -> str:
    """A text to sort rows by, in which floats that are close are the same."""
    match value:
        case float():
            return f"{value:.5g}"
        case dict():
            return str([place(inner) for inner in value.values()])
        case list() | tuple():
            return str([place(inner) for inner in value])
        case _:
            return repr(value)


def assert_same(expected: pa.RecordBatch, actual: pa.RecordBatch, ordered: bool) -> None:
    assert actual.schema == expected.schema
    one, other = (rows if ordered else sorted(rows, key=place) for rows in (expected.to_pylist(), actual.to_pylist()))
    assert len(one) == len(other)
    assert [pair for pair in zip(one, other, strict=True) if not close(*pair)] == []


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
async def test_modes_give_the_same_rows(engine: Engine, cluster_engine: Engine, case: Case) -> None:
    direct, job, remote = await asyncio.gather(
        results(engine, case, Mode.DIRECT), results(engine, case, Mode.JOB), results(cluster_engine, case, Mode.JOB)
    )
    assert (sum(part.num_rows for part in direct) == 0) == case.empty
    for expected, *others in zip(direct, job, remote, strict=True):
        for actual in others:
            assert_same(expected, actual, case.ordered)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
async def test_inputs_narrowed_to_what_is_used_give_the_same_rows(engine: Engine, case: Case) -> None:
    used = (await engine.analyse(case.sql, SCHEMAS)).used
    expected = await results(engine, case, Mode.DIRECT)
    async with await engine.plan(replace(case.spec(Mode.DIRECT), inputs=used)) as fragment:
        inputs = [
            [narrowed(batch, used[name]) for batch in batches] for name, batches in zip(used, INPUTS, strict=True)
        ]
        actual = await fragment.run(*inputs)
    for one, other in zip(expected, actual, strict=True):
        assert_same(one, other, case.ordered)


@pytest.mark.parametrize(
    ("expression", "error_class"),
    [
        ("x / (k - k)", "DIVIDE_BY_ZERO"),
        ("penstock_divide(id, k - k)", "DIVIDE_BY_ZERO"),
        ("CAST(s AS INT)", "CAST_INVALID_INPUT"),
        ("array(k)[id]", "INVALID_ARRAY_INDEX"),
        ("CAST(id * 100000000 AS INT)", "CAST_OVERFLOW"),
        ("id + 9223372036854775800", "ARITHMETIC_OVERFLOW"),
        ("to_timestamp(s, 'yyyy')", "CANNOT_PARSE_TIMESTAMP"),
        ("raise_error(s)", "USER_RAISED_EXCEPTION"),
    ],
)
async def test_row_that_fails_is_the_users_error_in_every_mode(
    engine: Engine, cluster_engine: Engine, expression: str, error_class: str
) -> None:
    sql = f"SELECT id, {expression} AS y FROM a WHERE id > 10 AND k IS NOT NULL"
    places = []
    for where, mode in ((engine, Mode.DIRECT), (engine, Mode.JOB), (cluster_engine, Mode.JOB)):
        async with await where.plan(FragmentSpec(sql, {"a": FACTS}, mode=mode)) as fragment:
            with pytest.raises(DataError) as raised:
                await fragment.run(INPUTS[0])
            assert raised.value.error_class == error_class
            places.append(raised.value.position)
            (result,) = await fragment.run(INPUTS[0][0].slice(0, 10))  # none of which passes the filter
            assert result.num_rows == 0
    assert places == [places[0]] * 3
