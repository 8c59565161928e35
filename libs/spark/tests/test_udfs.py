"""Python functions give the same in a fragment of either mode and on a cluster, and fail as the user's own."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import pytest_asyncio

from penstock.spark import Engine, FragmentRefused, FragmentSpec, Mode, SqlError, Udf, UdfError, UdfKind
from penstock.spark.standalone import cluster_settings, standalone_cluster
from penstock.spark.testing import spark_settings

_START = datetime(2024, 2, 28, 23, 59)  # noqa: DTZ001 - timestamps without a zone are under test
ROWS = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.string()),
        ("s", pa.string()),
        ("n", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us")),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("st", pa.struct([("p", pa.int32()), ("q", pa.string())])),
    ]
)


def row(i: int) -> dict[str, object]:
    values: dict[str, object] = {
        "k": i,
        "g": "abc"[i % 3],
        "s": f"straße {i}",
        "n": Decimal(i * 7).scaleb(-2),
        "ts": _START + timedelta(minutes=i),
        "at": _START.replace(tzinfo=UTC) + timedelta(minutes=i),
        "tags": [f"t{i % 4}", None],
        "st": {"p": i, "q": f"q{i}"},
    }
    return values | {name: None for offset, name in enumerate(values) if (i + offset) % 11 == 0}


RECORDS = [row(i) for i in range(60)]
BATCHES = [pa.RecordBatch.from_pylist(RECORDS[start : start + 25], ROWS) for start in range(0, 60, 25)]


# They are in a module that workers cannot import, so all of this also shows that such functions arrive.


def shout(text: str | None) -> str | None:
    return None if text is None else text.upper() + suffix()


def suffix() -> str:
    return "!"


def later(at: datetime | None) -> datetime | None:
    return None if at is None else at + timedelta(days=1, microseconds=1)


def priced(amount: Decimal | None, k: int | None) -> Decimal | None:
    return None if amount is None or k is None else amount * 2 + Decimal("0.01")


def described(k: int | None, tags: list[str | None] | None, st: Any) -> dict[str, object] | None:
    if k is None:
        return None
    inner = None if st is None else {"p": st["p"], "q": st["q"]}
    return {"k": k, "tags": tags, "counts": {"k": k, "tags": None if tags is None else len(tags)}, "inner": inner}


def doubled_arrow(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2)


def joined_arrow(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(one, other, "-")


def moved_arrow(at: pa.Array) -> pa.Array:
    return pc.add(at, pa.scalar(timedelta(hours=1)))


def lengths_pandas(texts: pd.Series) -> pd.Series:
    return texts.str.len().astype("Int64")


def moved_pandas(at: pd.Series) -> pd.Series:
    return at + pd.Timedelta(hours=1)


def pairs_pandas(k: pd.Series, s: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"k": k.fillna(-1).astype("int64"), "s": s})


def spread_arrow(values: pa.Array) -> object:
    return pc.subtract(pc.max(values), pc.min(values)).as_py()


def total_pandas(amounts: pd.Series) -> object:
    return sum(amount for amount in amounts if amount is not None)


def longest_pandas(texts: pd.Series) -> object:
    return max((text for text in texts if text is not None), key=lambda text: (len(text), text), default=None)


DESCRIBED = pa.struct(
    [
        ("k", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("p", pa.int64()), ("q", pa.string())])),
    ]
)
UDFS = (
    Udf("shout", shout, pa.string()),
    Udf("later", later, pa.timestamp("us")),
    Udf("later_utc", later, pa.timestamp("us", tz="UTC")),
    Udf("priced", priced, pa.decimal128(12, 2)),
    Udf("described", described, DESCRIBED),
    Udf("is_even", lambda k: k is not None and k % 2 == 0, pa.bool_()),
    Udf("doubled_arrow", doubled_arrow, pa.int64(), UdfKind.ARROW),
    Udf("joined_arrow", joined_arrow, pa.string(), UdfKind.ARROW),
    Udf("moved_arrow", moved_arrow, pa.timestamp("us"), UdfKind.ARROW),
    Udf("lengths_pandas", lengths_pandas, pa.int64(), UdfKind.PANDAS),
    Udf("moved_pandas", moved_pandas, pa.timestamp("us"), UdfKind.PANDAS),
    Udf("pairs_pandas", pairs_pandas, pa.struct([("k", pa.int64()), ("s", pa.string())]), UdfKind.PANDAS),
    Udf("spread_arrow", spread_arrow, pa.int64(), UdfKind.ARROW_AGGREGATE),
    Udf("total_pandas", total_pandas, pa.decimal128(14, 2), UdfKind.PANDAS_AGGREGATE),
    Udf("longest_pandas", longest_pandas, pa.string(), UdfKind.PANDAS_AGGREGATE),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engines(engine: Engine, cluster: str) -> AsyncIterator[tuple[tuple[Engine, Mode], ...]]:
    """Where functions run; both engines of this process have them at the same time."""
    async with await Engine.start(cluster_settings(cluster)) as on_cluster:
        for udf in UDFS:
            await engine.register(udf)
            await on_cluster.register(udf)
        yield (engine, Mode.DIRECT), (engine, Mode.JOB), (on_cluster, Mode.JOB)


Engines = tuple[tuple[Engine, Mode], ...]


async def rows(engine: Engine, mode: Mode, sql: str) -> list[dict[str, Any]]:
    async with await engine.plan(FragmentSpec(sql, {"rows": ROWS}, mode=mode)) as fragment:
        (result,) = await fragment.run(BATCHES)
        listed: list[dict[str, Any]] = result.to_pylist()
        return listed


async def everywhere(engines: Engines, sql: str) -> list[dict[str, Any]]:
    """The rows that a query gives, in any order, after checking that it gives them everywhere."""
    found = await asyncio.gather(*(rows(engine, mode, sql) for engine, mode in engines))
    direct, *others = (sorted(listed, key=str) for listed in found)
    assert all(other == direct for other in others)
    return direct


def expected(**columns: Any) -> list[dict[str, Any]]:
    return sorted(({name: made(record) for name, made in columns.items()} for record in RECORDS), key=str)


async def test_scalar_function_takes_and_gives_nulls_and_text(engines: Engines) -> None:
    found = await everywhere(engines, "SELECT shout(s) AS y FROM rows")
    assert found == expected(y=lambda r: shout(r["s"]))
    assert any(record["y"] is None for record in found)


async def test_scalar_function_takes_and_gives_timestamps(engines: Engines) -> None:
    found = await everywhere(engines, "SELECT later(ts) AS y FROM rows")
    assert found == expected(y=lambda r: later(r["ts"]))


async def test_scalar_function_takes_and_gives_decimals(engines: Engines) -> None:
    found = await everywhere(engines, "SELECT priced(n, k) AS y FROM rows")
    assert found == expected(y=lambda r: priced(r["n"], r["k"]))


async def test_scalar_function_takes_and_gives_nested_types(engines: Engines) -> None:
    def as_arrow(record: dict[str, Any]) -> object:
        made: Any = described(record["k"], record["tags"], record["st"])
        return made and {**made, "counts": list(made["counts"].items())}

    found = await everywhere(engines, "SELECT described(k, tags, st) AS y FROM rows")
    assert found == expected(y=as_arrow)


async def test_arrow_functions_take_and_give_arrays(engines: Engines) -> None:
    sql = "SELECT doubled_arrow(k) AS d, joined_arrow(g, s) AS j, moved_arrow(ts) AS m FROM rows"
    assert await everywhere(engines, sql) == expected(
        d=lambda r: None if r["k"] is None else r["k"] * 2,
        j=lambda r: None if r["g"] is None or r["s"] is None else f"{r['g']}-{r['s']}",
        m=lambda r: None if r["ts"] is None else r["ts"] + timedelta(hours=1),
    )


async def test_pandas_functions_take_and_give_series(engines: Engines) -> None:
    sql = "SELECT lengths_pandas(s) AS l, moved_pandas(ts) AS m, pairs_pandas(k, s) AS p FROM rows"
    assert await everywhere(engines, sql) == expected(
        l=lambda r: None if r["s"] is None else len(r["s"]),
        m=lambda r: None if r["ts"] is None else r["ts"] + timedelta(hours=1),
        p=lambda r: {"k": -1 if r["k"] is None else r["k"], "s": r["s"]},
    )


async def test_aggregate_functions_take_a_group(engines: Engines) -> None:
    def values(group: str | None, name: str) -> list[Any]:
        return [record[name] for record in RECORDS if record["g"] == group and record[name] is not None]

    groups = ("a", "b", "c", None)
    found = await everywhere(engines, "SELECT g, spread_arrow(k) AS k FROM rows GROUP BY g")
    spread = {group: max(values(group, "k")) - min(values(group, "k")) for group in groups}
    assert {record["g"]: record["k"] for record in found} == spread
    found = await everywhere(engines, "SELECT g, total_pandas(n) AS n, longest_pandas(s) AS s FROM rows GROUP BY g")
    assert {record["g"]: (record["n"], record["s"]) for record in found} == {
        group: (sum(values(group, "n")), max(values(group, "s"), key=lambda text: (len(text), text)))
        for group in groups
    }


async def test_aggregate_functions_of_two_kinds_in_one_query_are_refused(engines: Engines) -> None:
    sql = "SELECT spread_arrow(k) AS k, total_pandas(n) AS n FROM rows"
    for engine, mode in engines:
        with pytest.raises(FragmentRefused, match="functions of different kinds"):
            await engine.plan(FragmentSpec(sql, {"rows": ROWS}, mode=mode))


async def test_partition_column_that_is_not_there_is_refused_when_planned(engines: Engines) -> None:
    for engine, mode in engines:
        with pytest.raises(FragmentRefused, match="partition column"):
            await engine.plan(FragmentSpec("SELECT k FROM rows", {"rows": ROWS}, None, ("z",), 2, mode))


async def test_function_groups_and_filters(engines: Engines) -> None:
    found = await everywhere(
        engines, "SELECT shout(g) AS y, count(*) AS c FROM rows WHERE is_even(k) GROUP BY shout(g) HAVING count(*) > 1"
    )
    even = [record for record in RECORDS if record["k"] is not None and record["k"] % 2 == 0]  # type: ignore[operator]
    assert {record["y"]: record["c"] for record in found} == {
        shout(group): sum(record["g"] == group for record in even) for group in ("a", "b", "c", None)
    }


async def test_function_joins(engines: Engines) -> None:
    found = await everywhere(
        engines,
        "SELECT one.k, two.k AS other FROM rows one JOIN rows two ON doubled_arrow(one.k) = two.k AND is_even(one.k)",
    )
    keys: set[Any] = {record["k"] for record in RECORDS} - {None}
    assert [(record["k"], record["other"]) for record in sorted(found, key=lambda record: record["k"])] == [
        (key, key * 2) for key in sorted(keys) if key * 2 in keys and key % 2 == 0
    ]


async def test_function_with_partitioned_output(engines: Engines) -> None:
    parts = []
    for engine, mode in engines:
        spec = FragmentSpec("SELECT shout(s) AS y, k FROM rows", {"rows": ROWS}, None, ("y",), 3, mode)
        async with await engine.plan(spec) as fragment:
            parts.append([sorted(part.to_pylist(), key=str) for part in await fragment.run(BATCHES)])
    assert parts[0] == parts[1] == parts[2]
    assert sum(map(len, parts[0])) == len(RECORDS)
    assert all(parts[0])


async def test_function_in_an_empty_run_gives_nothing(engines: Engines) -> None:
    for engine, mode in engines:
        async with await engine.plan(
            FragmentSpec("SELECT shout(s) AS y FROM rows", {"rows": ROWS}, mode=mode)
        ) as fragment:
            (result,) = await fragment.run([])
            assert result.num_rows == 0


def picky(k: int | None) -> int:
    if k == 30:
        return helper_that_fails(k)
    return k or 0


def helper_that_fails(k: int) -> int:
    raise ValueError(f"no {k} please")


def picky_arrow(values: pa.Array) -> pa.Array:
    helper_that_fails(len(values))
    return values


def assert_shows_the_users_lines(error: UdfError, function: Any) -> None:
    lines = str(error).splitlines()
    line = helper_that_fails.__code__.co_firstlineno + 1
    assert lines[-1].startswith("ValueError: no ")
    assert lines[-3].endswith(f'test_udfs.py", line {line}, in helper_that_fails')
    assert any(f"in {function.__name__}" in line for line in lines)
    assert not any("pyspark" in line for line in lines)


async def test_function_that_raises_is_the_users_error_and_the_fragment_goes_on(engines: Engines) -> None:
    for engine, mode in engines:
        await engine.register(Udf("picky", picky, pa.int64()))
        spec = FragmentSpec("SELECT picky(k) AS y FROM rows WHERE k >= 30", {"rows": ROWS}, mode=mode)
        async with await engine.plan(spec) as fragment:
            with pytest.raises(UdfError) as raised:
                await fragment.run(BATCHES)
            assert_shows_the_users_lines(raised.value, picky)
            (result,) = await fragment.run(BATCHES[2])
            assert result.num_rows == sum(record["k"] is not None for record in RECORDS[50:])


@pytest.mark.parametrize("kind", [UdfKind.ARROW, UdfKind.ARROW_AGGREGATE])
async def test_arrow_function_that_raises_is_the_users_error(engine: Engine, kind: UdfKind) -> None:
    await engine.register(Udf("picky_arrow", picky_arrow, pa.int64(), kind))
    with pytest.raises(UdfError) as raised:
        await rows(engine, Mode.DIRECT, "SELECT picky_arrow(k) AS y FROM rows")
    assert_shows_the_users_lines(raised.value, picky_arrow)


async def test_registering_again_replaces_for_fragments_planned_afterwards(engines: Engines) -> None:
    for engine, mode in engines:
        await engine.register(Udf("edition", lambda k: 1, pa.int64()))
        spec = FragmentSpec("SELECT DISTINCT edition(k) AS y FROM rows", {"rows": ROWS}, mode=mode)
        async with await engine.plan(spec) as before:
            await before.run(BATCHES)
            await engine.register(Udf("edition", lambda k: "two", pa.string()))
            async with await engine.plan(spec) as after:
                (result,) = await after.run(BATCHES)
                assert result["y"].to_pylist() == ["two"]


@pytest.mark.parametrize("name", ["version", "UPPER", "explode"])
async def test_name_of_a_built_in_function_is_refused(engine: Engine, name: str) -> None:
    with pytest.raises(UdfError, match="built-in"):
        await engine.register(Udf(name, lambda k: k, pa.int64()))


async def test_unknown_function_is_an_sql_error(engine: Engine) -> None:
    with pytest.raises(SqlError, match="nowhere"):
        await engine.plan(FragmentSpec("SELECT nowhere(k) FROM rows", {"rows": ROWS}))


async def test_function_that_cannot_be_sent_is_the_users_error(engine: Engine) -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(UdfError, match="function stuck cannot be sent"):
        await engine.register(Udf("stuck", lambda k: str(loop), pa.string()))


async def test_function_of_a_module_on_no_path_brings_its_helpers(engine: Engine, tmp_path: Path) -> None:
    modules = {"penstock_helper_": "def twice(k):\n    return k * 2\n", "penstock_user_": _USER_MODULE}
    for name, source in modules.items():
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    try:
        await engine.register(Udf("thrice", sys.modules["penstock_user_"].thrice, pa.int64()))
    finally:
        for name in modules:
            del sys.modules[name]
    found = await rows(engine, Mode.DIRECT, "SELECT thrice(k) AS y FROM rows WHERE k = 5")
    assert found == [{"y": 15}]


_USER_MODULE = """
import penstock_helper_
from penstock_helper_ import twice

def thrice(k):
    return twice(k) + penstock_helper_.twice(k) - k
"""


async def test_engine_that_closes_leaves_the_functions_of_another(engine: Engine) -> None:
    path = list(sys.path)
    async with await Engine.start(spark_settings()) as other:
        await other.register(Udf("here", lambda k: "other", pa.string()))
        await engine.register(Udf("here", lambda k: "first", pa.string()))
        for where, name in ((other, "other"), (engine, "first")):
            assert {record["y"] for record in await rows(where, Mode.DIRECT, "SELECT here(k) AS y FROM rows")} == {name}
    await engine.register(Udf("here", lambda k: "again", pa.string()))
    assert {record["y"] for record in await rows(engine, Mode.DIRECT, "SELECT here(k) AS y FROM rows")} == {"again"}
    assert sys.path == path
