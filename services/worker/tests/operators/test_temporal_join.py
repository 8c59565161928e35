"""Joins with versions: whichever way rows and watermarks are cut, a row meets the version of its own time."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.program import JoinKind, TemporalJoin
from penstock.worker.operators import sides
from penstock.worker.operators.base import END_OF_TIME, ChainOperator
from penstock.worker.operators.temporal_join import VERSIONS
from penstock.worker.operators.testing import SharedPlanner, batch_of, opened, rows_of
from penstock.worker.state.tables import TOMBSTONE_COLUMN

EXAMPLES = 300 if os.environ.get("PENSTOCK_TEST_FULL") else 40

_TIME = pa.field("_timestamp", pa.timestamp("us"), nullable=False)
_HASH = pa.field("_hash", pa.int64())
_LEFT = pa.schema([pa.field("_k0", pa.int64()), pa.field("left.v", pa.int64()), _HASH, _TIME])
_RIGHT = pa.schema(
    [
        pa.field("_k0", pa.int64()),
        pa.field("right.v", pa.int64()),
        pa.field("_op", pa.int8(), nullable=False),
        _HASH,
        _TIME,
    ]
)
_OUTPUT = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("y", pa.int64()), _TIME])
_VERSIONS = """
SELECT *, row_number() OVER (PARTITION BY _k0 ORDER BY _timestamp DESC) = 1 AS _last FROM (
  SELECT _k0, `right.v`, _op, _hash, _timestamp FROM (
    SELECT *, row_number() OVER (PARTITION BY _k0, _timestamp ORDER BY _op DESC, `right.v` DESC) AS _place FROM (
      SELECT _k0, `right.v`, CAST(signum(sum(_op)) AS TINYINT) AS _op, _hash, _timestamp FROM input
      GROUP BY _k0, `right.v`, _hash, _timestamp HAVING sum(_op) <> 0)) WHERE _place = 1)
"""
_JOINED = """
SELECT _row.k AS k, _row.x AS x, {y} AS y, _timestamp FROM (
  SELECT _row, _asks, _timestamp, last(_version, true) OVER (
    PARTITION BY _k0 ORDER BY _timestamp, _asks ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _version FROM (
    SELECT _k0, named_struct('k', _k0, 'x', `left.v`) AS _row, NULL AS _version, true AS _asks, _timestamp FROM left
    UNION ALL
    SELECT _k0, NULL, named_struct('op', _op, 'y', `right.v`), false, _timestamp FROM right)) WHERE _asks {where}
"""

Row = tuple[int, int, int]
"""A key, a number and a time."""
Change = tuple[int, int, int, int]
"""A key, a number, a time, and whether it comes or goes."""


def join_of(kind: JoinKind) -> TemporalJoin:
    is_left = kind is JoinKind.LEFT
    y = "if(_version.op > 0, _version.y, NULL)" if is_left else "_version.y"
    return TemporalJoin(_LEFT, _RIGHT, _VERSIONS, _JOINED.format(y=y, where="" if is_left else "AND _version.op > 0"))


def hash_of(key: int) -> int:
    """Two keys share each hash: state is found by it, and told apart by the key."""
    return key // 2


def left_rows(*rows: Row) -> pa.RecordBatch:
    return batch_of(_LEFT, [(key, value, hash_of(key), time) for key, value, time in rows])


def changes(*rows: Change) -> pa.RecordBatch:
    return batch_of(_RIGHT, [(key, value, op, hash_of(key), time) for key, value, time, op in rows])


async def operator_of(kind: JoinKind, planner: SharedPlanner, ttl_ms: int = 0) -> ChainOperator:
    return await opened(join_of(kind), _LEFT, _OUTPUT, planner, updating_ttl_ms=ttl_ms)


def expected(kind: JoinKind, rows: Sequence[Row], history: Sequence[Change]) -> Counter[tuple[object, ...]]:
    """The same join, of all rows and changes at once."""
    found: Counter[tuple[object, ...]] = Counter()
    for key, value, time in rows:
        net: Counter[tuple[int, int]] = Counter()
        for changed, number, at, op in history:
            if changed == key and at <= time:
                net[at, number] += op
        settled = [(at, 1 if count > 0 else -1, number) for (at, number), count in net.items() if count]
        _, op, number = max(settled, default=(0, -1, 0))
        if op > 0 or kind is JoinKind.LEFT:
            found[key, value, number if op > 0 else None, time] += 1
    return found


_KEYS, _VALUES, _TIMES = st.integers(0, 3), st.integers(0, 3), st.integers(0, 12)


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(_KEYS, _VALUES, _TIMES), max_size=12),
    history=st.lists(st.tuples(_KEYS, _VALUES, _TIMES, st.sampled_from((1, 1, -1))), max_size=16),
    cuts=st.lists(st.integers(0, 13), max_size=4),
    portion=st.sampled_from((1, 4, 1 << 18)),
    dice=st.randoms(use_true_random=False),
)
async def test_a_row_meets_the_version_of_its_time_however_time_is_cut(
    kind: JoinKind, rows: list[Row], history: list[Change], cuts: list[int], portion: int, dice: random.Random,
    planner: SharedPlanner, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(sides, "_PORTION_ROWS", portion)
        operator = await operator_of(kind, planner)
        left: list[tuple[object, ...]] = []
        begin = 0
        watermarks = [*sorted(cuts), END_OF_TIME]
        arrivals: list[list[pa.RecordBatch]] = [[] for _ in watermarks]
        for time, batch in [*((row[2], left_rows(row)) for row in rows), *((one[2], changes(one)) for one in history)]:
            latest = next(place for place, watermark in enumerate(watermarks) if time < watermark)
            arrivals[dice.randint(0, latest)].append(batch)  # ahead of its time, perhaps far
        for end, batches in zip(watermarks, arrivals, strict=True):
            dice.shuffle(batches)
            for batch in batches:
                assert not await operator.process((batch,))
            found = rows_of(await operator.advance(end))
            assert all(begin <= int(str(row[-1])) < end for row in found)
            left, begin = left + found, end
    assert Counter(left) == expected(kind, rows, history)


async def test_nothing_leaves_before_the_watermark_has_passed_its_time(planner: SharedPlanner) -> None:
    operator = await operator_of(JoinKind.LEFT, planner)
    await operator.process((left_rows((1, 7, 10), (1, 8, 20)), changes((1, 5, 5, 1), (1, 6, 15, 1))))
    assert not await operator.advance(10)
    assert rows_of(await operator.advance(11)) == [(1, 7, 5, 10)]
    assert operator.state_rows == 3  # the row that waits, the version that does, and the one that is valid
    assert rows_of(await operator.advance(END_OF_TIME)) == [(1, 8, 6, 20)]


async def test_a_delete_leaves_no_version_and_a_replacement_one(planner: SharedPlanner) -> None:
    operator = await operator_of(JoinKind.LEFT, planner)
    await operator.process((changes((1, 5, 0, 1), (1, 5, 10, -1), (1, 6, 10, 1), (1, 6, 20, -1)),))
    await operator.process((left_rows((1, 0, 9), (1, 1, 10), (1, 2, 19), (1, 3, 20)),))
    met = rows_of(await operator.advance(30))
    assert Counter(met) == Counter([(1, 0, 5, 9), (1, 1, 6, 10), (1, 2, 6, 19), (1, 3, None, 20)])
    assert operator.state_rows == 0


async def test_a_row_that_is_taken_back_at_its_own_time_never_was(planner: SharedPlanner) -> None:
    operator = await operator_of(JoinKind.LEFT, planner)
    await operator.process((changes((1, 5, 7, 1)),))
    await operator.process((changes((1, 5, 7, -1), (1, 4, 3, 1)),))  # an earlier row has come, and is the first
    await operator.process(
        (
            left_rows(
                (1, 0, 9),
            ),
        )
    )
    assert rows_of(await operator.advance(10)) == [(1, 0, 4, 9)]


async def test_late_rows_are_dropped_and_late_changes_count_from_then_on(planner: SharedPlanner) -> None:
    operator = await operator_of(JoinKind.LEFT, planner)
    await operator.process((left_rows((1, 0, 5), (1, 1, 30)), changes((1, 5, 5, 1))))
    assert rows_of(await operator.advance(20)) == [(1, 0, 5, 5)]
    await operator.process((left_rows((1, 2, 19)), changes((1, 9, 3, 1), (1, 6, 15, 1), (2, 8, 4, 1))))
    await operator.process((left_rows((2, 3, 31)),))
    assert operator.late_rows == 1
    # The change of 3 is behind the version of 5, which that of 15 replaces.
    assert Counter(rows_of(await operator.advance(40))) == Counter([(1, 1, 6, 30), (2, 3, 8, 31)])


async def test_only_keys_that_are_touched_are_read(planner: SharedPlanner) -> None:
    operator = await operator_of(JoinKind.INNER, planner)
    await operator.process((changes(*((key, key, 0, 1) for key in range(1000))),))
    await operator.advance(10)
    runs: list[int] = []
    query = operator._query  # type: ignore[attr-defined]
    run = query.run

    async def watched(left: Sequence[pa.RecordBatch], right: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        runs.append(sum(batch.num_rows for batch in right))
        result: pa.RecordBatch = await run(left, right)
        return result

    query.run = watched
    await operator.process((left_rows((500, 1, 20)), changes((700, 9, 20, 1), (600, 9, 20, 1))))
    assert rows_of(await operator.advance(30)) == [(500, 1, 500, 20)]
    assert runs == [2]  # that of its key, and of the one with the same hash


async def test_versions_are_forgotten_when_they_are_older_than_the_time_to_live(planner: SharedPlanner) -> None:
    operator = await operator_of(JoinKind.LEFT, planner, ttl_ms=1)
    await operator.process((changes((1, 5, 0, 1), (8, 6, 1500, 1)),))
    await operator.advance(2000)
    assert operator.state_rows == 1
    await operator.process((left_rows((1, 0, 2000), (8, 0, 2000)),))
    assert Counter(rows_of(await operator.advance(2001))) == Counter([(1, 0, None, 2000), (8, 0, 6, 2000)])


async def test_state_is_restored(planner: SharedPlanner) -> None:
    first, second = [await operator_of(JoinKind.INNER, planner) for _ in range(2)]
    for table in first.tables.values():
        table.begin()
    await first.process((changes((1, 5, 0, 1), (2, 6, 0, 1), (2, 6, 5, -1), (1, 7, 30, 1)), left_rows((1, 0, 5))))
    assert rows_of(await first.advance(10)) == [(1, 0, 5, 5)]
    await first.process((left_rows((1, 1, 20), (2, 2, 20), (1, 3, 30)),))
    await second.advance(10)
    for name, table in first.tables.items():
        for rows in table.freeze().parts():
            is_there = [not gone for gone in rows[TOMBSTONE_COLUMN].to_pylist()] if name == VERSIONS else None
            await second.restore(name, rows if is_there is None else rows.filter(pa.array(is_there)))
    assert second.state_rows == first.state_rows
    assert Counter(rows_of(await second.advance(40))) == Counter([(1, 1, 5, 20), (1, 3, 7, 30)])
