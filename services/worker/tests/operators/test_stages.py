"""Operators whose queries are stages of Spark's own aggregations, as the compiler emits them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import (
    Aggregation,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    Stage,
    StageQuery,
    TumblingWindowAggregate,
    UpdatingAggregate,
)
from penstock.spark import Engine
from penstock.worker.fragments import fragment_spec
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.testing import SharedPlanner, batch_of, opened, rows_of

TIMESTAMP = pa.field("_timestamp", pa.timestamp("us"), nullable=False)
WINDOW = pa.field("_window", pa.timestamp("us"), nullable=False)
VALUES = [("k", pa.string()), ("x", pa.int64()), ("s", pa.string())]
RESULTS = pa.schema(
    [
        ("k", pa.string()),
        ("mean", pa.float64()),
        ("distinct", pa.int64()),
        ("some", pa.int64()),
        ("all", pa.list_(pa.string())),
        ("deviation", pa.float64()),
        TIMESTAMP,
    ]
)
AGGREGATES = """avg(x) AS mean, count(DISTINCT s) AS distinct, count(*) FILTER (WHERE x > 1) AS some,
    sort_array(collect_list(s)) AS all, stddev_pop(x) AS deviation"""
NAMES = "k, mean, distinct, some, all, deviation"

Row = tuple[int, str | None, int | None, str | None]

ROWS = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 99),
            st.sampled_from(["a", "b", None]),
            st.sampled_from([0, 1, 2, None]),
            st.sampled_from(["p", "q", None]),
        ),
        max_size=10,
    ),
    max_size=5,
)


async def aggregation_of(engine: Engine, keys: str, schema: pa.Schema, first: str = "") -> Aggregation:
    sql = f"SELECT {keys}, {first}{AGGREGATES} FROM input GROUP BY {keys}"
    return Aggregation(sql, schema, (await engine.analyse_aggregation(sql, schema)).partial)


async def partials(planner: SharedPlanner, aggregation: Aggregation, rows: Iterable[object]) -> pa.RecordBatch:
    query = StageQuery("", aggregation, Stage.PARTIAL)
    fragment = await planner.plan(fragment_spec(query, aggregation.input, aggregation.partial))
    (batch,) = await fragment.run([batch_of(aggregation.input, rows)])  # type: ignore[arg-type]
    return batch


def expected(groups: dict[tuple[str | None, int], list[Row]]) -> list[tuple[object, ...]]:
    results: list[tuple[object, ...]] = []
    for (key, time), rows in groups.items():
        values = [x for _, _, x, _ in rows if x is not None]
        mean = sum(values) / len(values) if values else None
        deviation = round((sum((x - mean) ** 2 for x in values) / len(values)) ** 0.5, 9) if mean is not None else None
        strings = sorted(s for *_, s in rows if s is not None)
        some = sum(x > 1 for x in values)
        results.append((key, mean, len(set(strings)), some, strings, deviation, time))
    return sorted(results, key=str)


def rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(
        ((*row[:5], round(row[5], 9) if isinstance(row[5], float) else None, *row[6:]) for row in rows), key=str
    )


@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(batches=ROWS)
async def test_tumbling_windows_finish_what_spark_aggregates(
    engine: Engine, planner: SharedPlanner, batches: list[list[Row]]
) -> None:
    aggregation = await aggregation_of(engine, "_window, k", pa.schema([*VALUES, WINDOW]))
    final = StageQuery("", aggregation, Stage.FINAL, f"SELECT {NAMES}, _window AS _timestamp FROM input")
    kind = TumblingWindowAggregate(10, StageQuery("", aggregation, Stage.MERGE), final)
    operator = await opened(kind, aggregation.partial, RESULTS, planner)
    groups = defaultdict(list)
    for rows in batches:
        tumbled = [(key, x, s, time // 10 * 10) for time, key, x, s in rows]
        await operator.process((await partials(planner, aggregation, tumbled),))
        for row in rows:
            groups[row[1], row[0] // 10 * 10].append(row)
    assert rounded(rows_of(await operator.advance(END_OF_TIME))) == expected(groups)


@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(batches=ROWS)
async def test_sliding_windows_finish_what_spark_aggregates(
    engine: Engine, planner: SharedPlanner, batches: list[list[Row]]
) -> None:
    aggregation = await aggregation_of(engine, "_window, k", pa.schema([*VALUES, WINDOW]))
    final = StageQuery("", aggregation, Stage.FINAL, f"SELECT {NAMES}, _window AS _timestamp FROM input")
    kind = SlidingWindowAggregate(10, 40, StageQuery("", aggregation, Stage.MERGE), final)
    operator = await opened(kind, aggregation.partial, RESULTS, planner)
    groups = defaultdict(list)
    for rows in batches:
        tumbled = [(key, x, s, time // 10 * 10) for time, key, x, s in rows]
        await operator.process((await partials(planner, aggregation, tumbled),))
        for row in rows:
            for earlier in range(4):
                groups[row[1], (row[0] // 10 - earlier) * 10].append(row)
    left = [*await operator.advance(60), *await operator.advance(END_OF_TIME)]
    assert rounded(rows_of(left)) == expected(groups)


@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(batches=ROWS)
async def test_sessions_finish_what_spark_aggregates(
    engine: Engine, planner: SharedPlanner, batches: list[list[Row]]
) -> None:
    ends = [("_window", pa.timestamp("us")), ("_window_end", pa.timestamp("us"))]
    aggregation = await aggregation_of(engine, "_window, _window_end, k", pa.schema([*VALUES, *ends]))
    names = ", ".join(f"`{name}`" for name in aggregation.partial.names[2:])
    # Sessions of a fixed grid: what is of one is known without looking at the others.
    joins = f"""
        SELECT min(_window) OVER (PARTITION BY k, place) AS _window,
          max(_window_end) OVER (PARTITION BY k, place) AS _window_end, {names}
        FROM (SELECT *, floor(unix_micros(CAST(_window AS TIMESTAMP)) / 20) AS place FROM input)
        """
    merge = StageQuery(joins, aggregation, Stage.MERGE, "SELECT *, xxhash64(k) AS _hash FROM input")
    final = StageQuery("", aggregation, Stage.FINAL, f"SELECT {NAMES}, _window_end AS _timestamp FROM input")
    operator = await opened(SessionWindowAggregate(5, merge, final), aggregation.partial, RESULTS, planner)
    sessions = defaultdict(list)
    for rows in batches:
        alone = [(key, x, s, time, time + 5) for time, key, x, s in rows]
        await operator.process((await partials(planner, aggregation, alone),))
        for row in rows:
            sessions[row[1], row[0] // 20].append(row)
    left = rows_of(await operator.advance(END_OF_TIME))
    groups = {(key, max(row[0] for row in rows) + 5): rows for (key, _), rows in sessions.items()}
    assert rounded(left) == expected(groups)
    assert operator.state_rows == 0


@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(batches=ROWS)
async def test_changes_bring_a_view_to_what_spark_aggregates(
    engine: Engine, planner: SharedPlanner, batches: list[list[Row]]
) -> None:
    latest = "max(_timestamp) AS _timestamp, "
    aggregation = await aggregation_of(engine, "k", pa.schema([*VALUES, TIMESTAMP]), latest)
    merge = StageQuery("", aggregation, Stage.MERGE, "SELECT *, xxhash64(k) AS _hash FROM input")
    final = StageQuery("", aggregation, Stage.FINAL, f"SELECT {NAMES}, _timestamp FROM input")
    changes = pa.schema([*list(RESULTS)[:-1], pa.field("_op", pa.int8(), nullable=False), TIMESTAMP])
    operator = await opened(UpdatingAggregate(merge, final, 1), aggregation.partial, changes, planner)
    groups = defaultdict(list)
    view: Counter[str] = Counter()
    for rows in batches:
        changed = [(key, x, s, time) for time, key, x, s in rows]
        await operator.process((await partials(planner, aggregation, changed),))
        for row in rows:
            groups[row[1], 0].append(row)
        for *values, operation, _ in rounded(rows_of(await operator.flush())):
            assert isinstance(operation, int)
            view[str(values)] += operation
        assert +view == Counter(str([*row[:-1]]) for row in expected(groups))
        assert min(view.values(), default=0) >= 0
