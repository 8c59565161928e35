"""Python functions of columns that came as Arrow get them as they are, and give what Spark's own way gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import pytest_asyncio

from penstock.common.testing import eventually
from penstock.spark import Engine, FragmentSpec, Mode, Udf, UdfError, UdfKind

_MESSAGE_ROWS = 1 << 14  # of an input; Spark sends no more than 10,000 rows to a function at once
_START = datetime(2024, 2, 28, 23, 59)  # noqa: DTZ001 - timestamps without a zone are under test
# The first is of a type that Spark's own column class reads.
ROWS = pa.schema(
    [
        ("n", pa.decimal128(10, 2)),
        pa.field("k", pa.int64(), nullable=False),
        ("g", pa.int64()),
        ("flag", pa.bool_()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("at", pa.timestamp("us", tz="UTC")),
        ("took", pa.duration("us")),
        ("tags", pa.list_(pa.string())),
        ("st", pa.struct([("p", pa.int32()), ("q", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
TYPES = {field.name: field.type for field in ROWS if field.name != "k"}


def row(k: int) -> dict[str, object]:
    values: dict[str, object] = {
        "n": Decimal(k * 7).scaleb(-2),
        "g": k % 100,
        "flag": k % 2 == 0,
        "x": k / 8,
        "s": f"straße {k}" * (k % 3),
        "b": b"\0" * (k % 5),
        "d": date(2024, 1, 1) + timedelta(days=k % 1000),
        "ts": _START + timedelta(minutes=k),
        "at": _START.replace(tzinfo=UTC) + timedelta(minutes=k),
        "took": timedelta(seconds=k),
        "tags": [f"t{k % 4}", None][: k % 3],
        "st": {"p": k, "q": f"q{k}"},
        "m": [(str(k), k), ("none", None)][: k % 3],
    }
    return {"k": k, **values, **{name: None for place, name in enumerate(values) if (k + place) % 17 == 0}}


LARGE = pa.RecordBatch.from_pylist([row(k) for k in range(3 * _MESSAGE_ROWS + 100)], ROWS)


def same(values: Any) -> Any:
    return values


def doubled(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2)


def added(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.add(one, other)


def joined(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(one, other, "-")


def called_with(values: pa.Array) -> pa.Array:
    return pa.array([len(values)] * len(values), pa.int64())


def lengths(texts: pd.Series) -> pd.Series:
    return texts.str.len().astype("Int64")


def picky(values: pa.Array) -> pa.Array:
    if pc.any(pc.equal(values, 2 * _MESSAGE_ROWS)).as_py():
        raise ValueError("not this one")
    return values


def slow(values: pa.Array) -> pa.Array:
    time.sleep(0.0 if len(values) < 10 else 60.0)
    return values


UDFS = (
    *(Udf(f"same_{name}", same, kind, UdfKind.ARROW) for name, kind in TYPES.items()),
    *(Udf(f"valued_{name}", same, kind) for name, kind in TYPES.items() if name != "m"),
    Udf("doubled", doubled, pa.int64(), UdfKind.ARROW),
    Udf("added", added, pa.int64(), UdfKind.ARROW),
    Udf("joined", joined, pa.string(), UdfKind.ARROW),
    Udf("called_with", called_with, pa.int64(), UdfKind.ARROW),
    Udf("lengths", lengths, pa.int64(), UdfKind.PANDAS),
    Udf("twice", lambda k: k * 2, pa.int64()),
    Udf("is_even", lambda k: k % 2 == 0, pa.bool_()),
    Udf("nothing", lambda: 7, pa.int64()),
    Udf("picky", picky, pa.int64(), UdfKind.ARROW),
    Udf("slow", slow, pa.int64(), UdfKind.ARROW),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def registered(engine: Engine) -> AsyncIterator[None]:
    for udf in UDFS:
        await engine.register(udf)
    yield


def spec_of(sql: str, mode: Mode = Mode.DIRECT) -> FragmentSpec:
    return FragmentSpec(sql, {"rows": ROWS}, mode=mode)


async def rows(engine: Engine, sql: str, mode: Mode = Mode.DIRECT) -> pa.Table:
    async with await engine.plan(spec_of(sql, mode)) as fragment:
        (result,) = await fragment.run(LARGE)
        return pa.Table.from_batches([result]).sort_by("k")


async def calls(engine: Engine, sql: str) -> tuple[int, int]:
    """How often a plan calls functions of columns, and Spark's own operator."""
    plan = await engine.explain(spec_of(sql))
    return plan.count("PythonColumns"), plan.count("ArrowEvalPython")


async def test_functions_take_and_give_columns_of_every_type(engine: Engine) -> None:
    for prefix in ("same", "valued"):
        names = [udf.name.removeprefix(f"{prefix}_") for udf in UDFS if udf.name.startswith(f"{prefix}_")]
        sql = f"SELECT k, {', '.join(f'{prefix}_{name}({name}) AS {name}' for name in names)} FROM rows"
        assert await calls(engine, sql) == (1, 0)
        assert (await rows(engine, sql)).equals(pa.Table.from_batches([LARGE.select(["k", *names])]))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param("SELECT *, doubled(k) AS y FROM rows", (1, 0), id="beside-all-columns"),
        pytest.param("SELECT k, doubled(g) AS y, doubled(g) AS z, joined(s, s) AS j FROM rows", (1, 0), id="repeated"),
        pytest.param("SELECT n, k, doubled(doubled(g)) AS y FROM rows", (1, 0), id="chained"),
        pytest.param("SELECT n, k, added(doubled(g), twice(k)) AS y FROM rows", (3, 0), id="of-functions-of-two-kinds"),
        pytest.param("SELECT n, k, doubled(lengths(s)) AS y, twice(k) AS z, m FROM rows", (3, 0), id="of-three-kinds"),
        pytest.param("SELECT k, n, twice(k) AS y FROM rows WHERE is_even(k)", (1, 1), id="above-a-filter-by-another"),
        pytest.param("SELECT k, same_s(s) AS s FROM rows ORDER BY s, k LIMIT 999", (1, 0), id="sorted"),
        pytest.param("SELECT g AS k, max(same_s(s)) AS s, sum(x) AS x FROM rows GROUP BY g", (1, 0), id="aggregated"),
        pytest.param("SELECT g AS k, doubled(count(*)) AS c FROM rows GROUP BY g", (0, 1), id="of-an-aggregate"),
        pytest.param("SELECT k, doubled(k + 1) AS y, n FROM rows", (0, 1), id="of-an-expression"),
        pytest.param("SELECT k, nothing() AS y, n FROM rows", (0, 1), id="of-nothing"),
        pytest.param("SELECT k, doubled(values => k) AS y FROM rows", (0, 1), id="of-a-named-argument"),
        pytest.param(
            "SELECT k, doubled(k) AS y FROM rows UNION ALL SELECT -k - 1, doubled(g) FROM rows", (2, 0), id="union"
        ),
        pytest.param(
            "SELECT a.k, a.n, doubled(b.k) AS y FROM rows a JOIN rows b ON doubled(a.k) = b.k", (1, 1), id="joined"
        ),
    ],
)
async def test_functions_give_what_sparks_own_operator_gives(
    engine: Engine, sql: str, expected: tuple[int, int]
) -> None:
    assert await calls(engine, sql) == expected
    direct, job = [await rows(engine, sql, mode) for mode in (Mode.DIRECT, Mode.JOB)]
    assert direct.num_rows > 0
    assert direct.equals(job)


async def test_function_is_called_for_whole_messages_and_not_for_small_batches(engine: Engine) -> None:
    sql = "SELECT k, called_with(k) AS y FROM rows"
    (*whole, rest) = [_MESSAGE_ROWS] * 3 + [100]
    expected = [count for count in (*whole, rest) for _ in range(count)]
    async with await engine.plan(spec_of(sql)) as fragment:
        (result,) = await fragment.run(LARGE)
        assert result["y"].to_pylist() == expected
        small = [LARGE.slice(start, 10) for start in range(0, 500, 10)]
        (result,) = await fragment.run([LARGE.slice(0, 0), *small, LARGE.slice(0, 0)])
        assert result["k"].to_pylist() == list(range(500))
        assert result["y"].to_pylist() == [500] * 500
        (result,) = await fragment.run([*small, LARGE.slice(500)])
        assert result["k"].to_pylist() == list(range(LARGE.num_rows))
        (result,) = await fragment.run([LARGE.slice(0, 0)])
        assert result.num_rows == 0


async def test_function_that_raises_for_a_later_batch_leaves_nothing_behind(engine: Engine) -> None:
    async with await engine.plan(spec_of("SELECT n, picky(k) AS k FROM rows")) as fragment:
        await fragment.run(LARGE.slice(0, 10))
        before = (await engine.status()).arrow_allocated
        with pytest.raises(UdfError, match="ValueError: not this one"):
            await fragment.run(LARGE)
        assert (await engine.status()).arrow_allocated == before
        (result,) = await fragment.run(LARGE.slice(0, 10))
        assert result["k"].to_pylist() == list(range(10))


async def test_function_under_way_is_cancelled_with_its_run(engine: Engine) -> None:
    before = (await engine.status()).connections
    async with await engine.plan(spec_of("SELECT n, slow(k) AS k FROM rows")) as fragment:
        await fragment.run(LARGE.slice(0, 5))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await fragment.run(LARGE)

        async def is_gone() -> bool:
            return (await engine.status()).connections == before

        await eventually(is_gone)
        (result,) = await fragment.run(LARGE.slice(5, 5))
        assert result["k"].to_pylist() == list(range(5, 10))


async def test_columns_that_are_only_chosen_are_handed_on_as_they_are(engine: Engine) -> None:
    """Of one of two inputs: those of an only input do not even cross."""
    sql = f"SELECT k AS id, {', '.join(f'{name} AS {name}_, {name}' for name in TYPES)} FROM rows"
    spec = FragmentSpec(sql, {"rows": LARGE.schema, "others": LARGE.schema})
    assert (await engine.explain(spec)).startswith("SelectColumns")
    async with await engine.plan(spec) as fragment:
        (result,) = await fragment.run(LARGE, [])
    for name in TYPES:
        assert result[name].equals(LARGE[name]) and result[f"{name}_"].equals(LARGE[name])
