from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import StageQuery, TtlTime, UpdatingAggregate
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.testing import SharedPlanner, batch_of, opened, rows_of

TIMESTAMP = pa.field("_timestamp", pa.timestamp("us"), nullable=False)
OP = pa.field("_op", pa.int8(), nullable=False)

SUMS = pa.schema([("k", pa.string()), pa.field("n", pa.int64(), nullable=False), TIMESTAMP])
SUM_CHANGES = pa.schema([("k", pa.string()), ("n", pa.int64()), OP, TIMESTAMP])
SUM = UpdatingAggregate(
    StageQuery(
        "SELECT k, sum(n) AS n, max(_timestamp) AS _timestamp, xxhash64(k = 'a') AS _hash FROM input GROUP BY k"
    ),
    StageQuery("SELECT k, n, _timestamp FROM input WHERE n <> 3"),
)

# Rows that can be taken back: each with how often it is there. The result is the two greatest values of a key.
VALUES = pa.schema([("k", pa.string()), ("n", pa.int64()), ("count", pa.int64()), TIMESTAMP])
GREATEST = UpdatingAggregate(
    StageQuery(
        """
        SELECT k, n, sum(count) AS count, max(_timestamp) AS _timestamp, xxhash64(k) AS _hash FROM input
        GROUP BY k, n HAVING sum(count) <> 0
        """
    ),
    StageQuery(
        """
        SELECT k, n, _timestamp FROM (
          SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC NULLS LAST) AS place
          FROM input LATERAL VIEW explode(array_repeat(0, CAST(count AS INT))) AS copy
        ) WHERE place <= 2
        """
    ),
)

KEYS = st.sampled_from(["a", "b", "c", None])
View = Counter[tuple[object, ...]]


def apply(view: View, changes: tuple[pa.RecordBatch, ...]) -> None:
    """Brings a view up to date; what is taken back is there, and nothing is taken back only to be given again."""
    for batch in changes:
        assert batch.schema.equals(SUM_CHANGES)
        assert batch.num_rows
        rows = rows_of([batch])
        gone, come = ([row[:2] for row in rows if row[2] == operation] for operation in (-1, 1))
        assert [row[2] for row in rows] == [-1] * len(gone) + [1] * len(come)
        assert not set(gone) & set(come)
        view.subtract(gone)
        assert min(view.values(), default=0) >= 0
        view.update(come)
        for row in [row for row, count in view.items() if not count]:
            del view[row]


@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.lists(st.lists(st.tuples(KEYS, st.integers(-2, 3)), max_size=8), max_size=4), max_size=5))
async def test_changes_bring_a_view_to_the_sums_of_all_rows(
    planner: SharedPlanner, steps: list[list[list[tuple[str | None, int]]]]
) -> None:
    operator = await opened(SUM, SUMS, SUM_CHANGES, planner)
    sums: Counter[str | None] = Counter()
    view: View = Counter()
    for batches in steps:
        for rows in batches:
            assert await operator.process((batch_of(SUMS, [(key, n, 0) for key, n in rows]),)) == ()
            for key, n in rows:
                sums[key] += n
        assert operator.holds_changes == any(batches)
        changes = await operator.flush()
        assert not operator.holds_changes
        most = Counter((row[0], row[2]) for row in rows_of(changes)).values()
        assert max(most, default=1) == 1  # a key changes at most once
        apply(view, changes)
        assert view == Counter((key, n) for key, n in sums.items() if n != 3)
        assert operator.state_rows == len(sums)


@pytest.mark.usefixtures("small_bounds")
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_changes_of_rows_that_are_taken_back_bring_a_view_to_what_is_left(
    planner: SharedPlanner, data: st.DataObject
) -> None:
    operator = await opened(GREATEST, VALUES, SUM_CHANGES, planner)
    rows: Counter[tuple[str | None, int | None]] = Counter()
    view: View = Counter()
    for _ in range(data.draw(st.integers(0, 5))):
        changes: list[tuple[str | None, int | None, int, int]] = []
        for _ in range(data.draw(st.integers(0, 10))):
            if rows.total() and data.draw(st.booleans()):
                row, count = data.draw(st.sampled_from(sorted(rows.elements(), key=str))), -1
            else:
                row, count = data.draw(st.tuples(KEYS, st.sampled_from([1, 2, 3, None]))), 1
            rows[row] += count
            changes.append((*row, count, 0))
        for start in range(0, len(changes), 4):
            await operator.process((batch_of(VALUES, changes[start : start + 4]),))
        apply(view, await operator.flush())
        assert not operator.holds_changes
        expected: View = Counter()
        for key in {key for key, _ in rows}:
            values = [n for one, n in rows.elements() if one == key]
            values.sort(key=lambda n: (n is None, -(n or 0)))
            expected.update((key, n) for n in values[:2])
        assert view == expected


async def test_a_change_has_the_latest_event_time_and_an_unchanged_result_is_no_change(planner: SharedPlanner) -> None:
    operator = await opened(SUM, SUMS, SUM_CHANGES, planner)
    await operator.process((batch_of(SUMS, [("a", 1, 7), ("a", 1, 5), ("b", 1, 1)]),))
    assert sorted(map(str, rows_of(await operator.flush()))) == ["('a', 2, 1, 7)", "('b', 1, 1, 1)"]
    await operator.process((batch_of(SUMS, [("a", 2, 9), ("b", 0, 10)]),))
    assert rows_of(await operator.flush()) == [("a", 2, -1, 7), ("a", 4, 1, 9)]
    assert await operator.flush() == ()


async def test_the_end_of_time_lets_out_what_was_held_back(planner: SharedPlanner) -> None:
    operator = await opened(SUM, SUMS, SUM_CHANGES, planner)
    await operator.process((batch_of(SUMS, [("a", 1, 7)]),))
    assert await operator.advance(5) == ()
    assert operator.holds_changes
    assert rows_of(await operator.advance(END_OF_TIME)) == [("a", 1, 1, 7)]
    assert not operator.holds_changes


@pytest.mark.parametrize(("ttl_ms", "default_ms"), [(1, 0), (0, 1), (1, 5)])
async def test_keys_that_nothing_touches_are_forgotten(planner: SharedPlanner, ttl_ms: int, default_ms: int) -> None:
    kind = UpdatingAggregate(SUM.merge, SUM.final, ttl_ms)
    operator = await opened(kind, SUMS, SUM_CHANGES, planner, updating_ttl_ms=default_ms)
    await operator.process((batch_of(SUMS, [("a", 1, 0), ("b", 1, 900)]),))
    await operator.flush()
    await operator.advance(1500)
    assert operator.state_rows == 1
    await operator.process((batch_of(SUMS, [("a", 1, 1500), ("b", 1, 1500)]),))
    assert sorted(map(str, rows_of(await operator.flush()))) == [
        "('a', 1, 1, 1500)",
        "('b', 1, -1, 900)",
        "('b', 2, 1, 1500)",
    ]


async def test_without_a_time_to_live_keys_are_kept(planner: SharedPlanner) -> None:
    operator = await opened(SUM, SUMS, SUM_CHANGES, planner)
    await operator.process((batch_of(SUMS, [("a", 1, 0)]),))
    await operator.flush()
    await operator.advance(10**15)
    assert operator.state_rows == 1


class Time:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


def by_the_clock(kind: UpdatingAggregate) -> UpdatingAggregate:
    return UpdatingAggregate(kind.merge, kind.final, 1, TtlTime.PROCESSING)


@pytest.mark.parametrize(("kind", "schema"), [(SUM, SUMS), (GREATEST, VALUES)])
async def test_by_the_clock_keys_are_forgotten_whatever_their_event_times(
    planner: SharedPlanner, kind: UpdatingAggregate, schema: pa.Schema
) -> None:
    clock, middle = Time(), [1] * (len(schema) - 2)
    operator = await opened(by_the_clock(kind), schema, SUM_CHANGES, planner, clock=clock)
    await operator.process((batch_of(schema, [("a", *middle, 10**15)]),))
    await operator.flush()
    clock.now += 900
    await operator.advance(10**16)
    await operator.process((batch_of(schema, [("b", *middle, 0)]),))
    await operator.flush()
    assert operator.state_rows == 2
    clock.now += 500
    await operator.advance(10**16)
    assert operator.state_rows == 1
    clock.now += 1100
    await operator.process((batch_of(schema, [("b", *middle, 0)]),))
    assert rows_of(await operator.flush()) == [("b", 1, 1, 0)]


async def test_a_touched_key_is_not_forgotten_by_the_clock(planner: SharedPlanner) -> None:
    clock = Time()
    operator = await opened(by_the_clock(SUM), SUMS, SUM_CHANGES, planner, clock=clock)
    for _ in range(5):
        await operator.process((batch_of(SUMS, [("a", 1, 0)]),))
        changes = rows_of(await operator.flush())
        clock.now += 800
    assert changes[-1] == ("a", 5, 1, 0)


@pytest.mark.parametrize(("stood_still_us", "kept"), [(0, 1), (500, 0), (-150, 2)])
async def test_ages_by_the_clock_go_on_where_state_is_restored(
    planner: SharedPlanner, stood_still_us: int, kept: int
) -> None:
    clock = Time()
    kind = by_the_clock(SUM)
    first, second = [await opened(kind, SUMS, SUM_CHANGES, planner, clock=clock) for _ in range(2)]
    first.tables["groups"].begin()
    for key in ("b", "a"):
        await first.process((batch_of(SUMS, [(key, 1, 0)]),))
        await first.flush()
        clock.now += 450
    clock.now += stood_still_us
    for rows in first.tables["groups"].freeze().parts():
        await second.restore("groups", rows)
    clock.now += 200  # the next look for what is too old
    await second.advance(0)
    assert second.state_rows == kept
