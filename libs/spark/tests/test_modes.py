"""A query gives the same rows on the engine's own threads, as a Spark job, and as a job on a cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import pytest_asyncio

from penstock.spark import AggregationStage, DataError, Engine, FragmentSpec, Mode, StageName
from penstock.spark.standalone import cluster_settings, standalone_cluster
from penstock.spark.testing import assert_same_rows

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


KEYED = pa.schema([("k", pa.int32()), ("v", pa.int64())])
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


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
async def test_modes_give_the_same_rows(engine: Engine, cluster_engine: Engine, case: Case) -> None:
    direct, job, remote = await asyncio.gather(
        results(engine, case, Mode.DIRECT), results(engine, case, Mode.JOB), results(cluster_engine, case, Mode.JOB)
    )
    assert (sum(part.num_rows for part in direct) == 0) == case.empty
    for expected, *others in zip(direct, job, remote, strict=True):
        for actual in others:
            assert_same_rows(expected, actual, case.ordered)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
async def test_inputs_narrowed_to_what_is_used_give_the_same_rows(engine: Engine, case: Case) -> None:
    used = await engine.used_by(case.sql, SCHEMAS)
    expected = await results(engine, case, Mode.DIRECT)
    async with await engine.plan(replace(case.spec(Mode.DIRECT), inputs=used)) as fragment:
        inputs = [
            [narrowed(batch, used[name]) for batch in batches] for name, batches in zip(used, INPUTS, strict=True)
        ]
        actual = await fragment.run(*inputs)
    for one, other in zip(expected, actual, strict=True):
        assert_same_rows(one, other, case.ordered)


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


@pytest.mark.parametrize("stage", StageName)
async def test_stage_of_an_aggregation_is_the_same_whatever_the_master(
    engine: Engine, cluster_engine: Engine, stage: StageName
) -> None:
    aggregation = AggregationStage("SELECT k, sum(v) AS v FROM input GROUP BY k", KEYED, stage)
    rows = KEYED if stage is StageName.PARTIAL else (await engine.analyse_aggregation(aggregation.sql, KEYED)).partial
    spec = FragmentSpec("", {"rows": rows}, aggregation=aggregation, after="SELECT * FROM input WHERE k > 0")
    batch = pa.RecordBatch.from_pylist([{name: i % 5 for name in rows.names} for i in range(20)], rows)
    results: list[pa.RecordBatch] = []
    for where, mode in ((engine, Mode.DIRECT), (engine, Mode.JOB), (cluster_engine, None)):
        async with await where.plan(replace(spec, mode=mode)) as fragment:
            results += await fragment.run(batch)
    assert results[0].num_rows == 4
    for result in results[1:]:
        assert_same_rows(results[0], result, ordered=False)
