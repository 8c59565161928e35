from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import SessionWindowAggregate, StageQuery
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.testing import SharedPlanner, batch_of, opened, rows_of

SESSIONS = pa.schema(
    [
        ("_window", pa.timestamp("us")),
        ("_window_end", pa.timestamp("us")),
        ("k", pa.string()),
        pa.field("n", pa.int64(), nullable=False),
    ]
)
RESULTS = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("start", pa.timestamp("us")),
        pa.field("_timestamp", pa.timestamp("us"), nullable=False),
    ]
)
# Few hashes, so that keys share them.
MERGE = StageQuery(
    """
    SELECT min(_window) AS _window, max(_window_end) AS _window_end, k, sum(n) AS n, xxhash64(k = 'a') AS _hash
    FROM (
      SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY _window, _window_end) AS session
      FROM (
        SELECT *, CASE WHEN _window >= max(_window_end) OVER (
          PARTITION BY k ORDER BY _window, _window_end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) THEN 1 ELSE 0 END AS begins
        FROM input
      )
    )
    GROUP BY k, session
    """
)
FINAL = StageQuery("SELECT k, n, _window AS start, _window_end AS _timestamp FROM input")

Row = tuple[int, str | None, int]
Session = tuple[str | None, int, int, int]  # key, sum, start, end


def joined(sessions: list[Session]) -> list[Session]:
    """Sessions of a key that touch as one."""
    found: list[Session] = []
    for key, n, start, end in sorted(sessions, key=lambda one: (str(one[0]), one[2])):
        if found and found[-1][0] == key and start < found[-1][3]:
            _, more, first, last = found.pop()
            key, n, start, end = key, n + more, first, max(last, end)
        found.append((key, n, start, end))
    return found


@st.composite
def streams(draw: st.DrawFn, gap: int) -> list[tuple[list[list[Row]], int]]:
    steps: list[tuple[list[list[Row]], int]] = []
    watermark = draw(st.integers(-100, 0))
    for _ in range(draw(st.integers(1, 6))):
        times = st.integers(watermark - gap + 1, watermark + 6 * gap)
        rows = st.tuples(times, st.sampled_from(["a", "b", "c", None]), st.integers(0, 3))
        batches = draw(st.lists(st.lists(rows, max_size=6), max_size=4))
        watermark += draw(st.sampled_from([0, 1, gap - 1, gap, 5 * gap, 10**12]))
        steps.append((batches, watermark))
    return [*steps, ([], END_OF_TIME)]


@pytest.mark.parametrize("gap", [3, 100])
@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_each_session_leaves_once_when_the_watermark_passes_its_end(
    planner: SharedPlanner, gap: int, data: st.DataObject
) -> None:
    operator = await opened(SessionWindowAggregate(gap, MERGE, FINAL), SESSIONS, RESULTS, planner)
    kept: list[Session] = []
    for batches, watermark in data.draw(streams(gap)):
        for rows in batches:
            batch = batch_of(SESSIONS, [(time, time + gap, key, n) for time, key, n in rows])
            assert await operator.process((batch,)) == ()
            kept = joined([*kept, *((key, n, time, time + gap) for time, key, n in rows)])
            assert operator.state_rows == len(kept)
        left = await operator.advance(watermark)
        assert all(batch.schema.equals(RESULTS) and batch.num_rows for batch in left)
        assert Counter(rows_of(left)) == Counter(one for one in kept if one[3] <= watermark)
        kept = [one for one in kept if one[3] > watermark]
        assert operator.state_rows == len(kept)


async def test_a_session_that_goes_on_is_filed_about_once_a_gap(planner: SharedPlanner) -> None:
    operator = await opened(SessionWindowAggregate(100, MERGE, FINAL), SESSIONS, RESULTS, planner)
    filed = operator._ends  # type: ignore[attr-defined]
    for time in range(0, 2000, 10):
        await operator.process((batch_of(SESSIONS, [(time, time + 100, "a", 1)]),))
        assert await operator.advance(time) == ()
        assert filed.rows == 1
    (left,) = await operator.advance(2090)
    assert rows_of([left]) == [("a", 200, 0, 2090)]
    assert (operator.state_rows, filed.rows) == (0, 0)


async def test_a_session_that_begins_earlier_than_all_others_of_its_key_leaves_first(planner: SharedPlanner) -> None:
    operator = await opened(SessionWindowAggregate(10, MERGE, FINAL), SESSIONS, RESULTS, planner)
    for time in (1000, 0, 500):
        await operator.process((batch_of(SESSIONS, [(time, time + 10, "a", 1)]),))
    assert rows_of(await operator.advance(10)) == [("a", 1, 0, 10)]
    assert rows_of(await operator.advance(509)) == []
    assert rows_of(await operator.advance(510)) == [("a", 1, 500, 510)]
    assert rows_of(await operator.advance(END_OF_TIME)) == [("a", 1, 1000, 1010)]


async def test_rows_behind_the_watermark_join_a_session_but_make_none(planner: SharedPlanner) -> None:
    operator = await opened(SessionWindowAggregate(10, MERGE, FINAL), SESSIONS, RESULTS, planner)
    await operator.advance(100)
    await operator.process((batch_of(SESSIONS, [(95, 105, "a", 1), (50, 60, "b", 1)]),))
    assert operator.state_rows == 1
    await operator.process((batch_of(SESSIONS, [(86, 96, "a", 1), (50, 60, "a", 1)]),))
    assert rows_of(await operator.advance(END_OF_TIME)) == [("a", 2, 86, 105)]
