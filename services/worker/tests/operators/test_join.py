"""Joins of rows that come and go, on both sides, in any order: what leaves makes what a join of what is there gives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import LEFT, RIGHT, Join, JoinKind, JoinSide, TtlTime
from penstock.worker.operators.base import END_OF_TIME, ChainOperator
from penstock.worker.operators.testing import SharedPlanner, batch_of, opened, rows_of

Value = tuple[int | None, int | None]
"""A key and a number."""
Change = tuple[str, Value, int]
"""A side, a row, and whether it comes or goes."""

EXAMPLES = 200 if os.environ.get("PENSTOCK_TEST_FULL") else 15

_TIME = pa.field("_timestamp", pa.timestamp("us"), nullable=False)
_HASH = pa.field("_hash", pa.int64())
_WORDS = {
    JoinKind.INNER: "INNER JOIN",
    JoinKind.LEFT: "LEFT OUTER JOIN",
    JoinKind.RIGHT: "RIGHT OUTER JOIN",
    JoinKind.FULL: "FULL OUTER JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
    JoinKind.ANTI: "LEFT ANTI JOIN",
}


def schema_of(side: str, counted: bool) -> pa.Schema:
    columns = [pa.field("_k0", pa.int64()), pa.field(f"{side}.v", pa.int64())]
    return pa.schema([*columns, pa.field("_n", pa.int64()), _TIME] if counted else [*columns, _TIME, _HASH])


def rows_from(side: str, counted: bool, rows: Iterable[Sequence[object]]) -> pa.RecordBatch:
    """Rows of a side as they reach the operator; those that only come have a hash of their keys."""
    return batch_of(schema_of(side, counted), [row if counted else (*row, hash((row[0],))) for row in rows])


def side_of(side: str, counted: bool, retention_us: int = 0) -> JoinSide:
    value = f"`{side}.v`"
    count = (
        f"SELECT _k0, {value}, sum(_n) AS _n, max(_timestamp) AS _timestamp, xxhash64(_k0) AS _hash FROM input "
        f"GROUP BY _k0, {value} HAVING sum(_n) <> 0"
    )
    return JoinSide(schema_of(side, counted), count if counted else "", retention_us)


def spread(side: str, counted: bool) -> str:
    if not counted:
        return f"`{side}`"
    copies = "LATERAL VIEW explode(array_repeat(0, CAST(_n AS INT))) c AS d"
    return f"(SELECT _k0, `{side}.v`, _timestamp FROM `{side}` {copies})"


def join_of(kind: JoinKind, left: bool = True, right: bool = True, retention_us: int = 0) -> tuple[Join, pa.Schema]:
    """A join by key with a condition besides; a side is counted, or its rows only come."""
    only_left = kind in (JoinKind.SEMI, JoinKind.ANTI)
    columns = "l._k0 AS a, l.`left.v` AS x" + ("" if only_left else ", r._k0 AS b, r.`right.v` AS y")
    time = "l._timestamp" if only_left else "greatest(l._timestamp, r._timestamp) AS _timestamp"
    sql = (
        f"SELECT {columns}, {time} FROM {spread(LEFT, left)} AS l {_WORDS[kind]} {spread(RIGHT, right)} AS r "
        "ON l._k0 = r._k0 AND (l.`left.v` <> r.`right.v` OR l.`left.v` IS NULL)"
    )
    names = ["a", "x"] if only_left else ["a", "x", "b", "y"]
    appends = not left and not right and kind in (JoinKind.INNER, JoinKind.SEMI)
    op = [] if appends else [pa.field("_op", pa.int8(), nullable=False)]
    output = pa.schema([*(pa.field(name, pa.int64()) for name in names), *op, _TIME])
    sides = side_of(LEFT, left, retention_us), side_of(RIGHT, right, retention_us)
    return Join(*sides, sql, kind), output


def matches(left: Value, right: Value) -> bool:
    if left[0] is None or left[0] != right[0]:
        return False
    return left[1] is None or (right[1] is not None and left[1] != right[1])


def joined(kind: JoinKind, left: Sequence[Value], right: Sequence[Value]) -> Iterator[tuple[int | None, ...]]:
    """The same join, of all rows at once."""
    for one in left:
        met = [other for other in right if matches(one, other)]
        match kind:
            case JoinKind.SEMI | JoinKind.ANTI:
                if bool(met) is (kind is JoinKind.SEMI):
                    yield one
            case _:
                yield from (one + other for other in met)
                if not met and kind in (JoinKind.LEFT, JoinKind.FULL):
                    yield (*one, None, None)
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        yield from ((None, None, *other) for other in right if not any(matches(one, other) for one in left))


_NUMBERS = st.one_of(st.none(), st.integers(0, 2))


@st.composite
def histories(draw: st.DrawFn, *, gone: bool) -> list[list[Change] | None]:
    """Changes of both sides in batches, with flushes between; what goes was there."""
    present: dict[str, list[Value]] = {LEFT: [], RIGHT: []}
    history: list[list[Change] | None] = []
    for _ in range(draw(st.integers(1, 8))):
        changes: list[Change] = []
        for _ in range(draw(st.integers(1, 5))):
            side = draw(st.sampled_from((LEFT, RIGHT)))
            if gone and present[side] and draw(st.booleans()):
                row = present[side].pop(draw(st.integers(0, len(present[side]) - 1)))
                changes.append((side, row, -1))
            else:
                row = (draw(_NUMBERS), draw(_NUMBERS))
                present[side].append(row)
                changes.append((side, row, 1))
        history.append(changes)
        if draw(st.booleans()):
            history.append(None)
    return history


async def fed(operator: ChainOperator, changes: Sequence[Change], counted: dict[str, bool]) -> Iterator[pa.RecordBatch]:
    batches = []
    for side in (LEFT, RIGHT):
        rows = [(*row, *([change] if counted[side] else []), 0) for on, row, change in changes if on == side]
        if rows:
            batches.append(rows_from(side, counted[side], rows))
    return iter(await operator.process(tuple(batches)))


async def check(
    kind: JoinKind, history: Sequence[Sequence[Change] | None], planner: SharedPlanner, counted: dict[str, bool]
) -> None:
    join, output = join_of(kind, counted[LEFT], counted[RIGHT])
    operator = await opened(join, schema_of(LEFT, counted[LEFT]), output, planner)
    left_by: Counter[tuple[object, ...]] = Counter()
    present: dict[str, Counter[Value]] = {LEFT: Counter(), RIGHT: Counter()}

    def apply(batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> None:
        for row in rows_of(batches):
            values, change = (row[:-2], row[-2]) if "_op" in output.names else (row[:-1], 1)
            left_by[values] += int(str(change))
            assert left_by[values] >= 0, f"{values} is taken back and was not there"

    for changes in [*history, None]:
        if changes is None:
            apply(await operator.flush())
            rows = [list(present[side].elements()) for side in (LEFT, RIGHT)]
            assert +left_by == Counter(joined(kind, *rows))
        else:
            for side, row, change in changes:
                present[side][row] += change
            apply(await fed(operator, changes, counted))
    assert not await operator.advance(END_OF_TIME)


@pytest.mark.parametrize("kind", JoinKind)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(gone=True))
async def test_changes_of_both_sides_leave_what_is_joined(
    kind: JoinKind, history: list[list[Change] | None], planner: SharedPlanner
) -> None:
    await check(kind, history, planner, {LEFT: True, RIGHT: True})


@pytest.mark.parametrize("kind", JoinKind)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(gone=False))
async def test_rows_that_only_come_leave_what_is_joined(
    kind: JoinKind, history: list[list[Change] | None], planner: SharedPlanner
) -> None:
    await check(kind, history, planner, {LEFT: False, RIGHT: False})


async def test_rows_are_forgotten_when_the_other_side_can_no_longer_meet_them(planner: SharedPlanner) -> None:
    join, output = join_of(JoinKind.INNER, False, False, retention_us=1000)
    operator = await opened(join, schema_of(LEFT, False), output, planner)
    for time in range(0, 100_000, 50):
        await operator.process((rows_from(LEFT, False, [(1, 5, time)]),))
        await operator.advance(time)
    assert operator.state_rows < 100
    met = await operator.process((rows_from(RIGHT, False, [(1, 6, 99_950)]),))
    assert 20 <= len(rows_of(met)) < 100


async def test_a_row_that_comes_too_late_to_be_kept_does_not_leave_unmatched(planner: SharedPlanner) -> None:
    join, output = join_of(JoinKind.FULL, False, False, retention_us=1000)
    operator = await opened(join, schema_of(LEFT, False), output, planner)
    await operator.process((rows_from(LEFT, False, [(1, 5, 10_000)]),))
    await operator.flush()
    await operator.advance(10_000)
    await operator.process((rows_from(LEFT, False, [(1, 6, 8_000), (1, 7, 9_500)]),))
    assert [row[:2] for row in rows_of(await operator.flush())] == [(1, 7)]


async def test_state_is_restored(planner: SharedPlanner) -> None:
    join, output = join_of(JoinKind.LEFT)
    first, second = [await opened(join, schema_of(LEFT, True), output, planner) for _ in range(2)]
    for table in first.tables.values():
        table.begin()
    await first.process((rows_from(LEFT, True, [(1, 5, 2, 0), (2, 6, 1, 0)]),))
    await first.process((rows_from(RIGHT, True, [(1, 7, 1, 0)]),))
    given_out = rows_of(await first.flush())
    assert Counter(given_out) == Counter([(1, 5, 1, 7, 1, 0), (1, 5, 1, 7, 1, 0), (2, 6, None, None, 1, 0)])
    for name, table in first.tables.items():
        for rows in table.freeze().parts():
            await second.restore(name, rows)
    await second.process((rows_from(RIGHT, True, [(1, 7, -1, 0)]),))
    assert Counter(rows_of(await second.flush())) == Counter([(1, 5, 1, 7, -1, 0)] * 2 + [(1, 5, None, None, 1, 0)] * 2)


def by_the_clock(join: Join) -> Join:
    return replace(join, ttl_ms=1, ttl_time=TtlTime.PROCESSING)


@pytest.mark.parametrize("counted", [False, True])
async def test_by_the_clock_rows_are_kept_from_when_they_came(planner: SharedPlanner, counted: bool) -> None:
    now, one = 1_700_000_000_000_000, [1] if counted else []
    join, output = join_of(JoinKind.INNER, counted, counted)
    operator = await opened(by_the_clock(join), schema_of(LEFT, counted), output, planner, clock=lambda: now)
    await operator.process((rows_from(LEFT, counted, [(1, 5, *one, 10**15)]),))
    await operator.flush()
    now += 900
    await operator.advance(10**16)
    await operator.process((rows_from(LEFT, counted, [(2, 5, *one, 0)]),))
    await operator.flush()
    now += 600
    rows = rows_from(RIGHT, counted, [(1, 6, *one, 0), (2, 6, *one, 0)])
    met = [*rows_of(await operator.process((rows,))), *rows_of(await operator.flush())]
    assert [row[:4] for row in met] == [(2, 5, 2, 6)]
    assert operator.state_rows == 3


@pytest.mark.parametrize("counted", [False, True])
async def test_ages_by_the_clock_go_on_where_rows_are_restored(planner: SharedPlanner, counted: bool) -> None:
    now, one = 1_700_000_000_000_000, [1] if counted else []
    join, output = join_of(JoinKind.INNER, counted, counted)
    kind = by_the_clock(join)
    first, second = [await opened(kind, schema_of(LEFT, counted), output, planner, clock=lambda: now) for _ in range(2)]
    first.tables[LEFT].begin()
    for key in (1, 2):
        await first.process((rows_from(LEFT, counted, [(key, 5, *one, 0)]),))
        await first.flush()
        now += 500
    for part in first.tables[LEFT].freeze().parts():
        await second.restore(LEFT, part)
    assert second.state_rows == 2
    now += 300
    rows = rows_from(RIGHT, counted, [(1, 6, *one, 0), (2, 6, *one, 0)])
    met = [*rows_of(await second.process((rows,))), *rows_of(await second.flush())]
    assert [row[:4] for row in met] == [(2, 5, 2, 6)]


async def test_what_event_times_bound_is_kept_by_event_time_alone(planner: SharedPlanner) -> None:
    now = 1_700_000_000_000_000
    join, output = join_of(JoinKind.INNER, False, False, retention_us=1000)
    operator = await opened(by_the_clock(join), schema_of(LEFT, False), output, planner, clock=lambda: now)
    await operator.process((rows_from(LEFT, False, [(1, 5, 0)]),))
    now += 10**9
    assert len(await operator.process((rows_from(RIGHT, False, [(1, 6, 0)]),))) == 1
    await operator.advance(5000)
    assert operator.state_rows == 0
