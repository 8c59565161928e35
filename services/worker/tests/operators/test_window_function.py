from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import WindowFunction
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.testing import SharedPlanner, batch_of, opened, rows_of

TIMESTAMP = pa.field("_timestamp", pa.timestamp("us"), nullable=False)
ROWS = pa.schema([("n", pa.int64()), TIMESTAMP])
RANKED = pa.schema([("n", pa.int64()), ("place", pa.int32()), TIMESTAMP])
SQL = "SELECT n, rank() OVER (PARTITION BY _timestamp ORDER BY n) AS place, _timestamp FROM input"


@pytest.mark.parametrize("unit", [1, 400_000, 10_000_000])
@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_all_rows_of_an_event_time_are_ranked_together(
    planner: SharedPlanner, unit: int, data: st.DataObject
) -> None:
    operator = await opened(WindowFunction(SQL), ROWS, RANKED, planner)
    waiting: list[tuple[int, int]] = []
    watermark = 0
    for _ in range(data.draw(st.integers(1, 5))):
        times = st.integers(watermark // unit, watermark // unit + 5).map(lambda time: time * unit)
        for rows in data.draw(st.lists(st.lists(st.tuples(st.integers(0, 5), times), max_size=6), max_size=4)):
            on_time = [row for row in rows if row[1] >= watermark]
            await operator.process((batch_of(ROWS, on_time),))
            waiting += on_time
        watermark += data.draw(st.sampled_from([0, 1, unit, 3 * unit, 3 * unit + 1]))
        check(waiting, watermark, rows_of(await operator.advance(watermark)))
        waiting = [row for row in waiting if row[1] >= watermark]
        assert operator.state_rows == len(waiting)
        assert bool(operator.state_bytes) == bool(waiting)
    check(waiting, END_OF_TIME, rows_of(await operator.advance(END_OF_TIME)))


def check(rows: list[tuple[int, int]], watermark: int, left: list[tuple[object, ...]]) -> None:
    complete = [row for row in rows if row[1] < watermark]
    assert Counter(left) == Counter(
        (n, 1 + sum(other < n for other, at in complete if at == time), time) for n, time in complete
    )


async def test_rows_behind_the_watermark_are_dropped(planner: SharedPlanner) -> None:
    operator = await opened(WindowFunction(SQL), ROWS, RANKED, planner)
    await operator.advance(10)
    await operator.process((batch_of(ROWS, [(1, 9), (2, 10)]),))
    assert rows_of(await operator.advance(END_OF_TIME)) == [(2, 1, 10)]
