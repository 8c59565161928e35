"""Watermarks and late rows depend on the rows' order alone, not on how they are cut into batches and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark import (
    AggregationStage,
    DataError,
    Engine,
    Fragment,
    FragmentRefused,
    FragmentSpec,
    Mode,
    SqlError,
    StageName,
    Udf,
)

MICROSECONDS = pa.timestamp("us")
ROWS = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("ts", MICROSECONDS)])
DELAY = 5_000_000
PANE = 60_000_000

OBSERVED = "SELECT *, penstock_observe(ts, ts - INTERVAL '5' SECOND) AS _timestamp FROM input"
MARKED = f"SELECT *, penstock_watermark(_timestamp) AS _watermark FROM ({OBSERVED})"
ON_TIME = "penstock_on_time(penstock_pane(_timestamp, 60000000) + INTERVAL '60' SECOND, _watermark)"


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    x: int
    ts: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as it is to be seen."""

    row: Row
    watermark: int | None

    @property
    def is_on_time(self) -> bool:
        if self.watermark is None:
            return True
        return self.row.ts is not None and self.row.ts // PANE * PANE + PANE > self.watermark


def reference(rows: Sequence[Row], watermark: int | None) -> tuple[list[Seen], int | None]:
    """Each row with the watermark before it, and the watermark after them all."""
    seen = []
    for row in rows:
        seen.append(Seen(row, watermark))
        if row.ts is not None:
            watermark = row.ts - DELAY if watermark is None else max(watermark, row.ts - DELAY)
    return seen, watermark


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": row.id, "x": row.x, "ts": row.ts} for row in rows], ROWS)


def micros(column: pa.Array) -> list[int | None]:
    values: list[int | None] = column.cast(pa.int64()).to_pylist()
    return values


@st.composite
def runs_of_batches(draw: st.DrawFn) -> list[list[list[Row]]]:
    """Rows about some minutes before and after 1970, mostly in order, cut into batches and these into runs."""
    jumps = st.one_of(
        st.integers(-90_000_000, 120_000_000), st.sampled_from([0, 1, -1, DELAY, -DELAY, PANE]), st.none()
    )
    moment, count = draw(st.integers(-(10**9), 10**9)), 0
    runs: list[list[list[Row]]] = []
    for sizes in draw(st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=5)):
        runs.append([])
        for size in sizes:
            batch = []
            for jump in draw(st.lists(jumps, min_size=size, max_size=size)):
                moment, count = moment + (jump or 0), count + 1
                batch.append(Row(count, draw(st.integers(0, 6)), None if jump is None else moment))
            runs[-1].append(batch)
    return runs


async def observed(
    fragment: Fragment, runs: list[list[list[Row]]], watermark: int | None
) -> tuple[list[pa.RecordBatch], int | None, int]:
    """The results of all runs, each continuing where the last ended."""
    results: list[pa.RecordBatch] = []
    late_rows = 0
    for batches in runs:
        observed = await fragment.observe([batch_of(batch) for batch in batches], watermark)
        results += observed.batches
        watermark = observed.watermark
        late_rows += observed.late_rows
    return results, watermark, late_rows


examples = settings(max_examples=60, deadline=None)
watermarks = st.one_of(st.none(), st.integers(-(10**9), 10**9))


@examples
@given(runs=runs_of_batches(), watermark=watermarks)
async def test_watermark_before_each_row_is_that_of_all_rows_before_it(
    engine: Engine, runs: list[list[list[Row]]], watermark: int | None
) -> None:
    """Those included that the filter above drops."""
    rows = [row for batches in runs for batch in batches for row in batch]
    seen, after = reference(rows, watermark)
    sql = f"SELECT x * 2 AS y, id, _watermark, _timestamp, _timestamp AS again FROM ({MARKED}) WHERE x > 3"
    async with await engine.plan(FragmentSpec(sql, {"input": ROWS})) as fragment:
        results, reached, late_rows = await observed(fragment, runs, watermark)
    kept = [one for one in seen if one.row.x > 3]
    assert [value for batch in results for value in batch["id"].to_pylist()] == [one.row.id for one in kept]
    assert [value for batch in results for value in micros(batch["_watermark"])] == [one.watermark for one in kept]
    for column in ("_timestamp", "again"):
        assert [value for batch in results for value in micros(batch[column])] == [one.row.ts for one in kept]
    assert (reached, late_rows) == (after, 0)


@examples
@given(runs=runs_of_batches(), watermark=watermarks)
async def test_late_rows_are_dropped_and_counted_once_each(
    engine: Engine, runs: list[list[list[Row]]], watermark: int | None
) -> None:
    rows = [row for batches in runs for batch in batches for row in batch]
    seen, after = reference(rows, watermark)
    sql = f"SELECT id FROM (SELECT * FROM ({MARKED}) WHERE x > 1) WHERE {ON_TIME}"
    async with await engine.plan(FragmentSpec(sql, {"input": ROWS})) as fragment:
        results, reached, late_rows = await observed(fragment, runs, watermark)
    wanted = [one for one in seen if one.row.x > 1]
    assert [value for batch in results for value in batch["id"].to_pylist()] == [
        one.row.id for one in wanted if one.is_on_time
    ]
    assert (reached, late_rows) == (after, sum(not one.is_on_time for one in wanted))


@examples
@given(runs=runs_of_batches(), watermark=watermarks)
async def test_late_rows_do_not_come_to_a_partial_aggregation(
    engine: Engine, runs: list[list[list[Row]]], watermark: int | None
) -> None:
    rows = [row for batches in runs for batch in batches for row in batch]
    seen, after = reference(rows, watermark)
    windows = pa.schema([("_window", MICROSECONDS), ("x", pa.int32())])
    totals = "SELECT _window, sum(x) AS x FROM input GROUP BY _window"
    spec = FragmentSpec(
        f"SELECT penstock_pane(_timestamp, 60000000) AS _window, x FROM ({MARKED}) WHERE {ON_TIME}",
        {"input": ROWS},
        aggregation=AggregationStage(totals, windows, StageName.PARTIAL),
    )
    async with await engine.plan(spec) as fragment:
        results, reached, late_rows = await observed(fragment, runs, watermark)
    expected: dict[int | None, int] = {}
    for one in seen:
        if one.is_on_time:
            window = None if one.row.ts is None else one.row.ts // PANE * PANE
            expected[window] = expected.get(window, 0) + one.row.x
    actual: dict[int | None, int] = {}
    for batch in results:
        for window, total in zip(micros(batch["_window"]), batch["_b0"].to_pylist(), strict=True):
            actual[window] = actual.get(window, 0) + total
    assert actual == expected
    assert (reached, late_rows) == (after, sum(not one.is_on_time for one in seen))


SOME = [Row(number, 4, number % 7 * 13_000_000 - 40_000_000) for number in range(500)]


async def test_rows_of_many_columns_are_observed_as_those_of_few(engine: Engine) -> None:
    """Spark does not generate code over more than a hundred columns, but projects row by row."""
    wide = pa.schema([*ROWS, *((f"c{place}", pa.int32()) for place in range(150))])
    batch = pa.RecordBatch.from_pylist([{"id": row.id, "x": row.x, "ts": row.ts} for row in SOME], wide)
    seen, after = reference(SOME, None)
    computed = ", ".join(f"c{place} + 1 AS d{place}" for place in range(150))
    spec = FragmentSpec(f"SELECT *, {computed} FROM ({MARKED}) WHERE {ON_TIME}", {"input": wide})
    assert "*(" not in (await engine.explain(spec)).split("Project")[0]
    async with await engine.plan(spec) as fragment:
        (result,), reached, late_rows = await fragment.observe(batch, None)
    assert micros(result["_watermark"]) == [one.watermark for one in seen if one.is_on_time]
    assert (reached, late_rows) == (after, sum(not one.is_on_time for one in seen))
    assert late_rows > 0


async def test_python_function_beside_event_time_changes_nothing(engine: Engine) -> None:
    """Spark calls Python with many rows at once."""
    await engine.register(Udf("python_twice", lambda x: x * 2, pa.int32()))
    seen, after = reference(SOME, None)
    early = MARKED.replace("(ts, ts", "(timestampadd(SECOND, python_twice(0), ts), ts")
    for rows in (MARKED, early):
        sql = (
            f"SELECT python_twice(x) AS x, _watermark, _timestamp FROM ({rows}) WHERE {ON_TIME} AND python_twice(x) > 1"
        )
        async with await engine.plan(FragmentSpec(sql, {"input": ROWS})) as fragment:
            (result,), reached, late_rows = await fragment.observe(batch_of(SOME), None)
        assert micros(result["_watermark"]) == [one.watermark for one in seen if one.is_on_time]
        assert (reached, late_rows) == (after, sum(not one.is_on_time for one in seen))


async def test_event_time_is_observed_in_generated_code(engine: Engine) -> None:
    plan = await engine.explain(FragmentSpec(f"SELECT id FROM ({MARKED}) WHERE {ON_TIME}", {"input": ROWS}))
    assert all("*(1)" in line for line in plan.splitlines() if line and "ArrowScan" not in line)


async def test_run_that_fails_moves_no_watermark(engine: Engine) -> None:
    sql = f"SELECT 1 / (x - 4) AS y, _timestamp FROM ({MARKED})"
    before = [Row(1, 5, 10_000_000), Row(2, 5, 30_000_000)]
    async with await engine.plan(FragmentSpec(sql, {"input": ROWS})) as fragment:
        for _ in range(2):
            with pytest.raises(DataError):
                await fragment.observe(batch_of([Row(1, 4, 10**9)]), 7)
            assert (await fragment.observe(batch_of(before), 7))[1:] == (25_000_000, 0)
        assert len(await fragment.run(batch_of(before))) == 1  # from no watermark, for who does not ask


@pytest.mark.parametrize("mode", Mode)
async def test_event_time_is_observed_in_order_whatever_the_mode(engine: Engine, mode: Mode) -> None:
    seen, after = reference(SOME, 3)
    spec = FragmentSpec(
        f"SELECT id, _watermark, _timestamp FROM ({MARKED}) WHERE {ON_TIME}", {"input": ROWS}, mode=mode
    )
    async with await engine.plan(spec) as fragment:
        (result,), reached, late_rows = await fragment.observe([batch_of(SOME[:50]), batch_of(SOME[50:])], 3)
    assert result["id"].to_pylist() == [one.row.id for one in seen if one.is_on_time]
    assert (reached, late_rows) == (after, sum(not one.is_on_time for one in seen))


async def test_query_that_observes_nothing_leaves_the_watermark(engine: Engine) -> None:
    async with await engine.plan(FragmentSpec("SELECT id FROM input", {"input": ROWS})) as fragment:
        assert (await fragment.observe(batch_of(SOME), 7))[1:] == (7, 0)
        assert (await fragment.observe(batch_of(SOME), None))[1:] == (None, 0)


@pytest.mark.parametrize(
    ("moment", "width", "start"),
    [
        ("1970-01-01 00:01:00", "60000000", "1970-01-01 00:01"),
        ("1970-01-01 00:01:59.999999", "60000000", "1970-01-01 00:01"),
        ("1969-12-31 23:59:59.999999", "60000000", "1969-12-31 23:59"),
        ("1969-12-31 23:59:00", "60000000", "1969-12-31 23:59"),
        ("1969-12-31 23:58:59.999999", "60000000L", "1969-12-31 23:58"),
        ("2024-02-29 12:34:56.789", "86400000000", "2024-02-29"),
        ("2024-02-29 12:34:56.789", "1", "2024-02-29 12:34:56.789"),
    ],
)
@pytest.mark.parametrize("of", ["ts", "TIMESTAMP_NTZ '{}'"], ids=["column", "literal"])
async def test_pane_begins_at_a_multiple_of_its_width(
    engine: Engine, moment: str, width: str, start: str, of: str
) -> None:
    sql = f"SELECT penstock_pane({of.format(moment)}, {width}) AS pane FROM input"
    batch = pa.RecordBatch.from_pylist([{"ts": datetime.fromisoformat(moment)}], ROWS)
    async with await engine.plan(FragmentSpec(sql, {"input": ROWS})) as fragment:
        assert (await fragment.run(batch))[0].to_pylist() == [{"pane": datetime.fromisoformat(start)}]


async def test_rows_without_a_time_are_in_no_pane(engine: Engine) -> None:
    spec = FragmentSpec("SELECT penstock_pane(ts, 10) AS pane FROM input", {"input": ROWS})
    async with await engine.plan(spec) as fragment:
        assert (await fragment.run(batch_of([Row(1, 1, None)])))[0]["pane"].to_pylist() == [None]


async def test_analysis_finds_what_is_read_beside_event_time(engine: Engine) -> None:
    schema = pa.schema([("unread", pa.string()), *ROWS, ("other", pa.float64())])
    sql = f"SELECT x, _timestamp FROM ({MARKED}) WHERE {ON_TIME} AND x > 3"
    given, used = await engine.schema_of(sql, {"input": schema}), await engine.used_by(sql, {"input": schema})
    assert given == pa.schema([("x", pa.int32()), ("_timestamp", MICROSECONDS)])
    assert used["input"].names == ["x", "ts"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (f"SELECT a.id FROM ({OBSERVED}) a JOIN ({OBSERVED}) b ON a._timestamp = b._timestamp", "more than once"),
        (f"SELECT _timestamp FROM ({OBSERVED}) UNION ALL SELECT _timestamp FROM ({OBSERVED})", "more than once"),
        (f"SELECT penstock_watermark(_timestamp) AS w FROM (SELECT * FROM ({OBSERVED}) ORDER BY x)", "may have passed"),
        ("SELECT penstock_watermark(ts) AS w FROM input", "may have passed"),
    ],
)
async def test_event_time_that_would_be_wrong_is_refused(engine: Engine, sql: str, reason: str) -> None:
    with pytest.raises(FragmentRefused, match=reason):
        await engine.plan(FragmentSpec(sql, {"input": ROWS}))


async def test_observed_rows_that_are_read_twice_after_a_stage_are_refused(engine: Engine) -> None:
    spec = FragmentSpec(OBSERVED, {"input": ROWS}, after="SELECT a.x FROM input a JOIN input b USING (_timestamp)")
    with pytest.raises(FragmentRefused, match="read more than once"):
        await engine.plan(spec)


@pytest.mark.parametrize(
    ("call", "error_class"),
    [
        ("penstock_observe(ts)", "WRONG_NUM_ARGS.WITHOUT_SUGGESTION"),
        ("penstock_pane(ts, x, 1)", "WRONG_NUM_ARGS.WITHOUT_SUGGESTION"),
        ("penstock_pane(id, 10)", "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE"),
        ("penstock_on_time(ts, true)", "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE"),
    ],
)
async def test_wrong_arguments_are_errors_in_the_sql(engine: Engine, call: str, error_class: str) -> None:
    with pytest.raises(SqlError) as failed:
        await engine.schema_of(f"SELECT {call} AS y FROM input", {"input": ROWS})
    assert failed.value.error_class == error_class
