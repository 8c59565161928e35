from __future__ import annotations

from collections import Counter
from math import gcd

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import SlidingWindowAggregate, StageQuery
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.panes import Slide
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

SLIDES = [(10, 10), (5, 20), (4, 6), (7, 100), (10, 4), (1, 16), (3, 60)]

Row = tuple[int, str | None, int]
Steps = list[tuple[list[list[Row]], int]]


@st.composite
def streams(draw: st.DrawFn, slide: int, width: int, lateness: int) -> Steps:
    """Rows cut into batches, each time followed by a watermark; no row's last window has been closed for too long."""
    steps: Steps = []
    pane = gcd(slide, width)
    watermark = draw(st.integers(-3 * width, 0))
    for _ in range(draw(st.integers(1, 6))):
        first = ((watermark - lateness - width) // slide + 1) * slide  # the first window that still counts
        panes = st.integers(first // pane, (watermark + 2 * width) // pane).map(lambda number: number * pane)
        rows = st.tuples(panes, st.sampled_from(["a", "b", None]), st.integers(0, 3))
        batches = draw(st.lists(st.lists(rows, max_size=6), max_size=4))
        watermark += draw(st.sampled_from([0, 1, slide, width, width + slide - 1, 10**12]))
        steps.append((batches, watermark))
    return [*steps, ([], END_OF_TIME)]


def windows_of(pane: int, slide: int, width: int) -> list[int]:
    last = pane // slide * slide
    return [window for window in range(last, pane - width, -slide) if window <= pane < window + width]


def results(rows: list[Row], slide: int, width: int, since: int, until: int) -> Counter[tuple[object, ...]]:
    """The results of the windows that end after `since` and not after `until`."""
    groups: Counter[tuple[int, str | None]] = Counter()
    for pane, key, n in rows:
        for window in windows_of(pane, slide, width):
            if since < window + width <= until:
                groups[window, key] += n
    return Counter({(key, n, window): 1 for (window, key), n in groups.items() if n != 5})


@pytest.mark.parametrize(("slide", "width"), SLIDES)
@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_each_window_with_rows_leaves_once_in_order(
    planner: SharedPlanner, slide: int, width: int, data: st.DataObject
) -> None:
    kind = SlidingWindowAggregate(slide, width, MERGE, FINAL)
    operator = await opened(kind, PARTIALS, RESULTS, planner)
    everything: list[Row] = []
    before = -END_OF_TIME
    for batches, watermark in data.draw(streams(slide, width, 0)):
        for rows in batches:
            assert await operator.process((batch_of(PARTIALS, rows),)) == ()
            everything += rows
        left = await operator.advance(watermark)
        assert all(batch.schema.equals(RESULTS) and batch.num_rows for batch in left)
        assert Counter(rows_of(left)) == results(everything, slide, width, before, watermark)
        before = watermark
        open_rows = [row for row in everything if row[0] >= Slide(slide, width).first_open(watermark)]
        assert operator.state_rows <= len(open_rows)
        assert bool(operator.state_bytes) == bool(operator.state_rows)


@pytest.mark.parametrize(("slide", "width"), SLIDES)
@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_late_rows_correct_the_windows_that_have_closed(
    planner: SharedPlanner, slide: int, width: int, data: st.DataObject
) -> None:
    lateness = slide + 1
    kind = SlidingWindowAggregate(slide, width, MERGE, FINAL, lateness)
    operator = await opened(kind, PARTIALS, CHANGES, planner)
    everything: list[tuple[Row, int]] = []  # with the watermark when it came
    view: Counter[tuple[object, ...]] = Counter()
    watermark = -END_OF_TIME

    def expected() -> Counter[tuple[object, ...]]:
        groups: Counter[tuple[int, str | None]] = Counter()
        for (pane, key, n), came_at in everything:
            for window in windows_of(pane, slide, width):
                if window + width <= watermark and window + width + lateness > came_at:
                    groups[window, key] += n
        return Counter({(key, n, window): 1 for (window, key), n in groups.items() if n != 5})

    for batches, advanced in data.draw(streams(slide, width, lateness)):
        for rows in batches:
            changes = await operator.process((batch_of(PARTIALS, rows),))
            everything += ((row, watermark) for row in rows)
            apply(view, changes)
            assert view == expected()
        watermark = advanced
        apply(view, await operator.advance(watermark))
        assert view == expected()


def apply(view: Counter[tuple[object, ...]], changes: tuple[pa.RecordBatch, ...]) -> None:
    for batch in changes:
        assert batch.schema.equals(CHANGES)
        for *values, operation, timestamp in rows_of([batch]):
            assert isinstance(operation, int)
            view[*values, timestamp] += operation
            assert view[*values, timestamp] in (0, 1)
    for row in [row for row, count in view.items() if not count]:
        del view[row]


async def test_a_long_quiet_time_costs_nothing(planner: SharedPlanner) -> None:
    operator = await opened(SlidingWindowAggregate(1, 10, MERGE, FINAL), PARTIALS, RESULTS, planner)
    await operator.process((batch_of(PARTIALS, [(0, "a", 1), (10**17, "b", 1)]),))
    assert len(rows_of(await operator.advance(10**16))) == 10
    assert len(rows_of(await operator.advance(END_OF_TIME))) == 10
    assert operator.state_rows == 0


async def test_a_wide_window_is_put_together_of_few_merged_panes(planner: SharedPlanner) -> None:
    operator = await opened(SlidingWindowAggregate(1, 64, MERGE, FINAL), PARTIALS, RESULTS, planner)
    keys = [f"k{number}" for number in range(3000)]
    for pane in range(200):
        await operator.process((batch_of(PARTIALS, [(pane, key, 1) for key in keys]),))
    final = operator._final  # type: ignore[attr-defined]
    given: list[int] = []
    run = final.run

    async def counted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        given.append(sum(batch.num_rows for batch in batches))
        return await run(batches)

    final.run = counted
    for watermark in range(150, 160):
        for batch in await operator.advance(watermark):
            rows = rows_of([batch])
            assert all(n == min(64, int(str(window)) + 64) for _, n, window in rows)
    assert max(given[1:]) <= 10 * len(keys)
