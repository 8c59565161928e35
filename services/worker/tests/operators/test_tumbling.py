from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import StageQuery, TumblingWindowAggregate
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.testing import SharedPlanner, batch_of, opened, rows_of

PARTIALS = pa.schema(
    [
        pa.field("_window", pa.timestamp("us"), nullable=False),
        ("k", pa.string()),
        pa.field("n", pa.int64(), nullable=False),
    ]
)
RESULTS = pa.schema([("k", pa.string()), ("n", pa.int64()), pa.field("_timestamp", pa.timestamp("us"), nullable=False)])
CHANGES = pa.schema([*list(RESULTS)[:-1], pa.field("_op", pa.int8(), nullable=False), RESULTS.field("_timestamp")])
MERGE = StageQuery("SELECT _window, k, sum(n) AS n FROM input GROUP BY ALL")
FINAL = StageQuery("SELECT k, sum(n) AS n, _window AS _timestamp FROM input GROUP BY k, _window HAVING sum(n) <> 5")

Row = tuple[int, str | None, int]


@st.composite
def streams(draw: st.DrawFn, width: int, lateness: int) -> list[tuple[list[list[Row]], int]]:
    """Rows cut into batches, each time followed by a watermark; no window of a row has been closed for too long."""
    steps: list[tuple[list[list[Row]], int]] = []
    watermark = draw(st.integers(-3 * width, 0))
    for _ in range(draw(st.integers(1, 6))):
        first = (watermark - lateness - width) // width + 1
        windows = st.integers(first, watermark // width + 3).map(lambda n: n * width)
        rows = st.tuples(windows, st.sampled_from(["a", "b", None]), st.integers(0, 3))
        batches = draw(st.lists(st.lists(rows, max_size=6), max_size=4))
        watermark += draw(st.sampled_from([0, 1, width - 1, width, 3 * width, 1000 * width]))
        steps.append((batches, watermark))
    return steps


def results(rows: list[Row]) -> Counter[tuple[object, ...]]:
    groups: Counter[tuple[int, str | None]] = Counter()
    for window, key, n in rows:
        groups[window, key] += n
    return Counter({(key, n, window): 1 for (window, key), n in groups.items() if n != 5})


@pytest.mark.parametrize("width", [10, 700_000, 60_000_000])
@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_each_window_leaves_once_when_the_watermark_passes_its_end(
    planner: SharedPlanner, width: int, data: st.DataObject
) -> None:
    operator = await opened(TumblingWindowAggregate(width, MERGE, FINAL), PARTIALS, RESULTS, planner)
    steps: list[tuple[list[list[Row]], int]] = [*data.draw(streams(width, 0)), ([], END_OF_TIME)]
    waiting: list[Row] = []
    for batches, watermark in steps:
        for rows in batches:
            assert await operator.process((batch_of(PARTIALS, rows),)) == ()
            waiting += rows
        left = await operator.advance(watermark)
        assert all(batch.schema.equals(RESULTS) and batch.num_rows for batch in left)
        assert Counter(rows_of(left)) == results([row for row in waiting if row[0] + width <= watermark])
        waiting = [row for row in waiting if row[0] + width > watermark]
        assert bool(operator.state_rows) == bool(waiting)
        assert bool(operator.state_bytes) == bool(waiting)
    assert await operator.flush() == ()
    assert not operator.holds_changes


@pytest.mark.parametrize("width", [10, 60_000_000])
@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_late_rows_correct_a_window_that_has_closed(
    planner: SharedPlanner, width: int, data: st.DataObject
) -> None:
    lateness = 2 * width + 1
    operator = await opened(TumblingWindowAggregate(width, MERGE, FINAL, lateness), PARTIALS, CHANGES, planner)
    steps: list[tuple[list[list[Row]], int]] = [*data.draw(streams(width, lateness)), ([], END_OF_TIME)]
    everything: list[Row] = []
    view: Counter[tuple[object, ...]] = Counter()
    watermark = -END_OF_TIME
    for batches, advanced in steps:
        for rows in batches:
            changes = await operator.process((batch_of(PARTIALS, rows),))
            everything += rows
            apply(view, changes)
            assert view == results([row for row in everything if row[0] + width <= watermark])
        watermark = advanced
        apply(view, await operator.advance(watermark))
        assert view == results([row for row in everything if row[0] + width <= watermark])
        assert operator.state_rows <= sum(row[0] + width + lateness > watermark for row in everything)


def apply(view: Counter[tuple[object, ...]], changes: tuple[pa.RecordBatch, ...]) -> None:
    """Brings a view up to date; what is taken back is there, and nothing is taken back only to be given again."""
    for batch in changes:
        assert batch.schema.equals(CHANGES)
        rows = rows_of([batch])
        gone, come = ([(*row[:-2], row[-1]) for row in rows if row[-2] == operation] for operation in (-1, 1))
        assert [row[-2] for row in rows] == [-1] * len(gone) + [1] * len(come)
        assert not set(gone) & set(come)
        view.subtract(gone)
        assert min(view.values(), default=0) >= 0
        view.update(come)
        for row in [row for row, count in view.items() if not count]:
            del view[row]


async def test_memory_follows_distinct_keys_and_not_rows(planner: SharedPlanner) -> None:
    operator = await opened(TumblingWindowAggregate(10, MERGE, FINAL), PARTIALS, RESULTS, planner)
    rows = batch_of(PARTIALS, [(10 * (n % 3), "ab"[n % 2], 1) for n in range(6000)])
    for _ in range(60):
        await operator.process((rows,))
        assert operator.state_rows <= (1 << 16) + 6000
    (left,) = await operator.advance(END_OF_TIME)
    assert Counter(rows_of([left])) == Counter((key, 60_000, window) for key in "ab" for window in (0, 10, 20))


async def test_all_windows_that_end_together_are_finished_in_one_run(planner: SharedPlanner) -> None:
    operator = await opened(TumblingWindowAggregate(10, MERGE, FINAL), PARTIALS, RESULTS, planner)
    for window in range(0, 1000, 10):
        await operator.process((batch_of(PARTIALS, [(window, "a", 1)]),))
    (left,) = await operator.advance(505)
    assert left.num_rows == 50
    assert operator.state_rows == 50
