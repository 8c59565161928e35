"""Rows aggregated in stages, cut and merged in any way, give what one GROUP BY over all of them gives."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.spark import (
    AggregationStage,
    DataError,
    Engine,
    Fragment,
    FragmentRefused,
    FragmentSpec,
    Mode,
    Position,
    SqlError,
    StageName,
    Udf,
    UdfKind,
)
from penstock.spark.testing import assert_same_rows, spark_settings

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("k", pa.int32()),
        ("g", pa.string()),
        ("v", pa.int64()),
        ("small", pa.int32()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("n", pa.decimal128(12, 2)),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("at", pa.time64("us")),
        ("dur", pa.duration("us")),
        ("bin", pa.binary()),
        ("st", pa.struct([("p", pa.int32()), ("q", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("same", pa.string()),
    ]
)

# Each has one result, whatever order its rows come in: what does not is wrapped (a list is sorted), or is of one value.
AGGREGATES = [
    "count(*)", "count(v)", "count(v, s)", "count(id)", "count_if(b)", "count(1) + 0 * max(id)",
    "sum(v)", "sum(small)", "sum(x)", "sum(n)", "sum(dur)", "sum(make_ym_interval(0, small))", "try_sum(v)",
    "avg(v)", "avg(x)", "avg(n)", "avg(dur)", "avg(make_ym_interval(small))", "try_avg(n)",
    "min(v)", "max(x)", "max(n)", "max(s)", "min(d)", "max(ts)", "min(at)", "max(b)", "min(bin)", "max(st)",
    "min(tags)", "max(make_ym_interval(small, 1))", "min(CAST(ts AS TIMESTAMP_LTZ))",
    "max(s COLLATE UTF8_LCASE)", "count(DISTINCT s COLLATE UNICODE_CI)",
    "max(struct(s COLLATE UTF8_LCASE AS c, id)).id",
    "first(same, true)", "last(same, true)", "any_value(same, true)", "first(m) IS NULL OR count(*) > 0",
    "first(map('a', 1))", "first(NULL)", "first(INTERVAL '1' MONTH)", "first(make_interval(1, 2))",
    "sort_array(collect_list(v))", "sort_array(collect_set(s))", "sort_array(collect_list(struct(v, s)))",
    "array_size(collect_list(m))", "sort_array(array_agg(d))",
    "percentile(x, 0.5)", "percentile(v, array(0.25, 0.75))", "median(x)", "median(dur)",
    "percentile_cont(0.3) WITHIN GROUP (ORDER BY x DESC)", "percentile_disc(0.3) WITHIN GROUP (ORDER BY x)",
    "approx_percentile(v, 0.5, 1000)", "approx_count_distinct(s)", "approx_count_distinct(v, 0.1)",
    "mode() WITHIN GROUP (ORDER BY s)", "mode(v, true)",
    "aggregate(histogram_numeric(v, 9), 0D, (sum, bin) -> sum + bin.y)",
    "max_by(s, id)", "min_by(st, id)", "max_by(m, id)", "bool_and(b)", "bool_or(b)", "every(v > 1)", "some(v > 8)",
    "bit_and(v)", "bit_or(v)", "bit_xor(v)",
    "corr(x, y)", "covar_pop(x, y)", "covar_samp(x, y)", "regr_slope(x, y)", "regr_intercept(x, y)", "regr_r2(x, y)",
    "regr_count(x, y)", "regr_avgx(x, y)", "regr_sxy(x, y)", "regr_syy(x, y)",
    "stddev(x)", "stddev_pop(x)", "variance(x)", "var_pop(v)", "skewness(x)", "kurtosis(x)",
    "listagg(s, '|') WITHIN GROUP (ORDER BY s)", "array_sort(split(string_agg(s, '|'), '[|]'))",
    "listagg(s, '|') WITHIN GROUP (ORDER BY id DESC)",
    "count(DISTINCT v)", "count(DISTINCT v, s)", "sum(DISTINCT v)", "avg(DISTINCT n)", "max(DISTINCT s)",
    "count(DISTINCT st)", "sort_array(collect_list(DISTINCT v % 3))", "count_if(DISTINCT b)",
    "listagg(DISTINCT s, '|') WITHIN GROUP (ORDER BY s)",
    "count(DISTINCT v) + count(DISTINCT s)",
    "struct(count(DISTINCT v % 3), sum(DISTINCT v % 3 + 1), count(DISTINCT s, b), sum(x), max(s), count(*))",
    "struct(count(DISTINCT nullif(v, 1)), count(DISTINCT d), count(DISTINCT s), count(DISTINCT b), count(DISTINCT x))",
    "struct(count(DISTINCT s) FILTER (WHERE b), count(DISTINCT v), sum(v) FILTER (WHERE v > 2), median(x))",
    "sum(v) FILTER (WHERE b)", "count(*) FILTER (WHERE v > 3 AND s IS NOT NULL)", "max(s) FILTER (WHERE false)",
    "count(DISTINCT s) FILTER (WHERE b)", "sort_array(collect_list(v) FILTER (WHERE b))",
    "sum(v) * 2 - count(*)", "max(v) - min(v)", "sqrt(sum(x * x))", "CASE WHEN count(*) > 2 THEN max(s) ELSE 'few' END",
    "struct(min(v) AS low, max(s) AS high)", "sort_array(max_by(s, id, 3))",
    "hex(count_min_sketch(small, 0.5D, 0.5D, 1))", "bitmap_count(bitmap_construct_agg(small))", "NULL",
]  # fmt: skip


def row(id: int, dice: random.Random) -> dict[str, object]:
    """A row; any column but the first may be null."""
    number = dice.randrange(12)
    values: dict[str, object] = {
        "k": dice.randrange(3),
        "g": dice.choice("ab"),
        "v": number,
        "small": dice.randrange(5),
        "x": dice.uniform(-10, 10),
        "y": dice.uniform(0, 5),
        "n": Decimal(dice.randrange(-2000, 2000)).scaleb(-2),
        "b": dice.random() < 0.6,
        "s": f"Größe {dice.randrange(6)}",
        "d": date(2024, 1, 1) + timedelta(days=number),
        "ts": datetime(2024, 1, 1) + timedelta(seconds=dice.randrange(10**6)),  # noqa: DTZ001
        "at": time(dice.randrange(24), 1, 2),
        "dur": timedelta(seconds=dice.randrange(1000)),
        "bin": bytes([number, 255]),
        "st": {"p": dice.choice([None, 1, 2]), "q": dice.choice("xyz")},
        "tags": [f"t{place}" for place in range(number % 4)],
        "m": [("a", number)],
        "same": "same",
    }
    return {"id": id} | {name: None if dice.random() < 0.15 else value for name, value in values.items()}


def random_rows(count: int, dice: random.Random) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(id, dice) for id in range(count)], ROWS)


def cut(batch: pa.RecordBatch, dice: random.Random) -> list[list[pa.RecordBatch]]:
    """The rows as the inputs of several runs, of several batches each: of one row, of many, and of none."""
    runs: list[list[pa.RecordBatch]] = [[]]
    start = 0
    while start < batch.num_rows:
        size = dice.choice([0, 1, 1, 2, 7, 40])
        runs[-1].append(batch.slice(start, size))
        start += size
        if dice.random() < 0.5:
            runs.append([])
    return runs


@dataclass(frozen=True, slots=True)
class Stages:
    """The planned stages of one aggregation."""

    partial: Fragment
    merge: Fragment
    final: Fragment

    @classmethod
    @asynccontextmanager
    async def of(cls, engine: Engine, sql: str, schema: pa.Schema, keys: Sequence[str] = ()) -> AsyncIterator[Stages]:
        analysis = await engine.analyse_aggregation(sql, schema)
        async with AsyncExitStack() as stack:

            async def planned(stage: StageName, rows: pa.Schema) -> Fragment:
                parts = (tuple(keys), 2) if keys and stage is StageName.PARTIAL else ((), 1)
                aggregation = AggregationStage(sql, schema, stage)
                spec = FragmentSpec("", {"rows": rows}, None, *parts, aggregation=aggregation)
                return await stack.enter_async_context(await engine.plan(spec))

            stages = cls(
                await planned(StageName.PARTIAL, schema),
                await planned(StageName.MERGE, analysis.partial),
                await planned(StageName.FINAL, analysis.partial),
            )
            assert stages.partial.output_schema == stages.merge.output_schema == analysis.partial
            assert stages.final.output_schema == analysis.output
            yield stages

    async def merged(self, parts: list[pa.RecordBatch], dice: random.Random) -> list[pa.RecordBatch]:
        """The parts in another order, some of them merged, some of those merged again."""
        dice.shuffle(parts)
        while len(parts) > 1 and dice.random() < 0.8:
            count = dice.randrange(1, len(parts) + 1)
            parts = [*parts[count:], *(await self.merge.run(parts[:count]))]
        return parts

    async def run(self, rows: pa.RecordBatch, dice: random.Random) -> pa.RecordBatch:
        runs = [await self.partial.run(batches) for batches in cut(rows, dice)]
        finals: list[pa.RecordBatch] = []
        for parts in zip(*runs, strict=True):  # each partition on its own
            finals += await self.final.run(await self.merged(list(parts), dice))
        return pa.concat_batches(finals)


async def assert_stages_are_one_aggregation(engine: Engine, sql: str, keys: Sequence[str], seed: str) -> None:
    dice = random.Random(seed)
    whole_spec = FragmentSpec(sql, {"input": ROWS}, mode=Mode.DIRECT)
    async with await engine.plan(whole_spec) as whole, Stages.of(engine, sql, ROWS, keys) as stages:
        for count in (150, 30, 1, 0):
            rows = random_rows(count, dice)
            (expected,) = await whole.run(rows)
            assert_same_rows(expected, await stages.run(rows, dice), ordered=False)


@pytest.mark.parametrize("aggregate", AGGREGATES)
async def test_stages_by_keys_are_one_aggregation(engine: Engine, aggregate: str) -> None:
    sql = f"SELECT k, {aggregate} AS value, g FROM input GROUP BY k, g"
    await assert_stages_are_one_aggregation(engine, sql, ("g", "k"), aggregate)


# Spark has no plan for an order within a group beside several DISTINCTs.
ORDERED = [aggregate for aggregate in AGGREGATES if "ORDER BY" in aggregate]
UNORDERED = [aggregate for aggregate in AGGREGATES if aggregate not in ORDERED]


@pytest.mark.parametrize("aggregates", [ORDERED, *(UNORDERED[start::15] for start in range(15))])
async def test_stages_of_many_aggregates_without_keys_are_one_aggregation(
    engine: Engine, aggregates: list[str]
) -> None:
    columns = ", ".join(f"{aggregate} AS c{place}" for place, aggregate in enumerate(aggregates))
    await assert_stages_are_one_aggregation(engine, f"SELECT {columns} FROM input", (), aggregates[0])


@pytest.mark.parametrize("key", ["k", "n", "x", "zero", "b", "s", "d", "ts", "at", "dur", "bin", "st", "tags"])
async def test_keys_of_any_type_are_one_aggregation(engine: Engine, key: str) -> None:
    dice = random.Random(key)
    rows = random_rows(60, dice).append_column(
        "zero", pa.array([dice.choice([0.0, -0.0, float("nan"), None]) for _ in range(60)])
    )
    sql = f"SELECT {key}, count(*) AS n FROM input GROUP BY {key}"
    whole_spec = FragmentSpec(sql, {"input": rows.schema})
    async with await engine.plan(whole_spec) as whole, Stages.of(engine, sql, rows.schema, [key]) as stages:
        (expected,) = await whole.run(rows)
        assert_same_rows(expected, await stages.run(rows, dice), ordered=False)


async def test_rows_merged_in_their_order_keep_it(engine: Engine) -> None:
    aggregates = ("first(v)", "last(v)", "collect_list(v)", "first(s)", "last(s)", "listagg(s)", "any_value(v)")
    columns = ", ".join(f"{aggregate} AS c{place}" for place, aggregate in enumerate(aggregates))
    sql = f"SELECT k, {columns} FROM input GROUP BY k"
    dice = random.Random(1)
    rows = random_rows(200, dice)
    whole_spec = FragmentSpec(sql, {"input": ROWS})
    async with await engine.plan(whole_spec) as whole, Stages.of(engine, sql, ROWS) as stages:
        (expected,) = await whole.run(rows)
        kept: list[pa.RecordBatch] = []
        for batches in cut(rows, dice):
            kept = list(await stages.merge.run([*kept, *(await stages.partial.run(batches))]))
        (actual,) = await stages.final.run(kept)
    assert_same_rows(expected, actual, ordered=False)


async def test_groups_alone_need_no_aggregate(engine: Engine) -> None:
    await assert_stages_are_one_aggregation(engine, "SELECT g, k FROM input GROUP BY k, g", ("k",), "groups")


async def test_having_is_of_whole_groups(engine: Engine) -> None:
    sql = "SELECT k, sum(v) AS total FROM input GROUP BY k HAVING count(*) > 9 AND k <> 2"
    await assert_stages_are_one_aggregation(engine, sql, ("k",), "having")


SALES = pa.schema([("shop", pa.string()), ("price", pa.int64())])
TOTALS = "SELECT day, shop, sum(price) AS total FROM input GROUP BY day, shop"
PRICES = pa.schema([pa.field("day", pa.int32(), nullable=False), *SALES])


def sales(*rows: tuple[str, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"shop": shop, "price": price} for shop, price in rows], SALES)


async def test_queries_go_before_and_after_a_stage(engine: Engine) -> None:
    """A key that the query before makes constant, and one that it makes twice, stay columns of partial results."""
    before = "SELECT 7 AS day, upper(shop) AS shop, price FROM rows WHERE price > 0"
    partial = (await engine.analyse_aggregation(TOTALS, PRICES)).partial
    first = FragmentSpec(before, {"rows": SALES}, aggregation=AggregationStage(TOTALS, PRICES, StageName.PARTIAL))
    last = FragmentSpec(
        "SELECT * FROM old UNION ALL SELECT * FROM new",
        {"old": partial, "new": partial},
        aggregation=AggregationStage(TOTALS, PRICES, StageName.FINAL),
        after="SELECT concat(shop, '-', day) AS shop, total FROM input WHERE total > 10 ORDER BY total",
    )
    async with await engine.plan(first) as one, await engine.plan(last) as two:
        assert one.output_schema == partial == pa.schema([*PRICES.remove(2), ("_b0", pa.int64())])
        (old,) = await one.run(sales(("a", 4), ("A", 2), ("b", 9), ("b", -7)))
        assert sorted(old.to_pylist(), key=str) == [
            {"day": 7, "shop": "A", "_b0": 6},
            {"day": 7, "shop": "B", "_b0": 9},
        ]
        (new,) = await one.run(sales(("b", 20), ("a", 5), ("c", 10)))
        (result,) = await two.run(old, new)
    assert result.to_pylist() == [{"shop": "A-7", "total": 11}, {"shop": "B-7", "total": 29}]


async def test_query_may_follow_a_query_without_a_stage(engine: Engine) -> None:
    after = "SELECT a.x + b.x AS y FROM input a JOIN input b USING (x)"
    spec = FragmentSpec("SELECT 3 AS x", {"rows": SALES}, after=after)
    async with await engine.plan(spec) as fragment:
        assert (await fragment.run([]))[0].to_pylist() == [{"y": 6}]


async def test_stages_of_different_engines_understand_each_other(engine: Engine) -> None:
    """Their JVMs hash ids and functions otherwise, and other plans were made in them before."""
    columns = ("v", "small", "s", "d", "n", "v % 3", "b", "nullif(v, 1)", "mirrored(s)")
    counts = ", ".join(f"count(DISTINCT {column}) AS c{place}" for place, column in enumerate(columns))
    sql = f"SELECT k, {counts}, sum(x) AS x FROM input GROUP BY k"
    mirrored = Udf("mirrored", lambda text: text and text[::-1], pa.string())
    rows = random_rows(100, random.Random(2))
    async with await Engine.start(spark_settings()) as other:
        for where in (engine, other):
            await where.register(mirrored)
        whole_spec = FragmentSpec(sql, {"input": ROWS})
        async with (
            await engine.plan(whole_spec) as whole,
            Stages.of(engine, sql, ROWS) as here,
            Stages.of(other, sql, ROWS) as there,
        ):
            (expected,) = await whole.run(rows)
            parts = [(await stages.partial.run(rows.slice(start, 50)))[0] for start, stages in ((0, here), (50, there))]
            assert parts[0].schema == parts[1].schema
            (merged,) = await there.merge.run(parts)
            for stages in (here, there):
                assert_same_rows(expected, (await stages.final.run(merged))[0], ordered=False)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT k + 1 AS j, sum(v) AS t FROM input GROUP BY k + 1", "which is no column"),
        ("SELECT k, g, sum(v) AS t FROM input GROUP BY ROLLUP (k, g)", "which is no column"),
        ("SELECT k FROM input", "one GROUP BY, not 0"),
        ("SELECT sum(t) AS t FROM (SELECT k, sum(v) AS t FROM input GROUP BY k)", "one GROUP BY, not 2"),
        ("SELECT i.k, sum(j.v) AS t FROM input i JOIN input j ON i.k = j.k GROUP BY i.k", "more than one input"),
        ("SELECT k, sum(r) AS t FROM (SELECT k, rank() OVER (ORDER BY v) AS r FROM input) GROUP BY k", "Window"),
        ("SELECT k, spread(v) AS t FROM input GROUP BY k", "not computed in parts"),
        (
            "SELECT listagg(s) WITHIN GROUP (ORDER BY s) AS t, count(DISTINCT s), count(DISTINCT v) FROM input",
            "beside several DISTINCT",
        ),
        ("SELECT k, first(parse_json(s)) AS t FROM input GROUP BY k", "VARIANT"),
        ("SELECT k, max(named_struct('i', make_ym_interval(v))) AS t FROM input GROUP BY k", "year-month interval"),
    ],
)
async def test_what_has_no_stages_is_refused(engine: Engine, sql: str, reason: str) -> None:
    spread = Udf("spread", lambda series: series.max() - series.min(), pa.int64(), UdfKind.PANDAS_AGGREGATE)
    await engine.register(spread)
    with pytest.raises(FragmentRefused, match=reason):
        await engine.analyse_aggregation(sql, ROWS)


async def test_rows_of_another_schema_than_the_aggregations_are_refused(engine: Engine) -> None:
    for rows in (SALES, pa.schema([("day", pa.int32()), *SALES])):  # a column too few, and one that may be null
        stage = AggregationStage(TOTALS, PRICES, StageName.PARTIAL)
        with pytest.raises(FragmentRefused, match="of other rows than the query gives"):
            await engine.plan(FragmentSpec("", {"rows": rows}, aggregation=stage))
    with pytest.raises(ValueError, match="one input"):
        FragmentSpec("", {"a": SALES, "b": SALES})


async def test_errors_name_the_sql_that_they_are_in(engine: Engine) -> None:
    wrong = "SELECT day,\n nope(price) AS total FROM input GROUP BY day"
    for sql, error_class in ((wrong, "UNRESOLVED_ROUTINE"), ("SELECT day FROM input GROUP BY", "PARSE_SYNTAX_ERROR")):
        with pytest.raises(SqlError) as failed:
            await engine.analyse_aggregation(sql, PRICES)
        assert (failed.value.error_class, failed.value.sql) == (error_class, sql)
    stage = AggregationStage(wrong, PRICES, StageName.PARTIAL)
    with pytest.raises(SqlError) as failed:
        await engine.plan(FragmentSpec("SELECT 7 AS day, * FROM rows", {"rows": SALES}, aggregation=stage))
    assert (failed.value.sql, failed.value.position) == (wrong, Position(2, 2))
    ratio = "SELECT day, sum(100 / price) AS total FROM input GROUP BY day"
    spec = FragmentSpec("", {"rows": PRICES}, aggregation=AggregationStage(ratio, PRICES, StageName.PARTIAL))
    async with await engine.plan(spec) as fragment:
        with pytest.raises(DataError) as bad:
            await fragment.run(pa.RecordBatch.from_pylist([{"day": 1, "shop": "a", "price": 0}], PRICES))
    assert (bad.value.error_class, bad.value.sql, bad.value.position) == ("DIVIDE_BY_ZERO", ratio, Position(1, 17))


async def test_the_first_plan_of_an_engine_is_as_any_other() -> None:
    """Spark takes columns for each other whose numbers are equal, whoever gave them; an engine begins with 0."""
    rows = pa.schema([("k", pa.int32()), ("s", pa.string())])
    stage = AggregationStage("SELECT k, count(DISTINCT s) AS n FROM input GROUP BY k", rows, StageName.MERGE)
    partial = pa.record_batch({"k": pa.array([1, 1, 1], pa.int32()), "_b0": ["a", "b", "a"]})
    async with await Engine.start(spark_settings()) as fresh:
        spec = FragmentSpec("", {"input": partial.schema}, aggregation=stage)
        async with await fresh.plan(spec) as fragment:
            (merged,) = await fragment.run(partial)
    assert sorted(merged.column("_b0").to_pylist()) == ["a", "b"]
