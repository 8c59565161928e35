from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.state import slabs
from penstock.worker.state.index import Int64s
from penstock.worker.state.keyed import KeyedState

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("names", pa.list_(pa.string())),
        pa.field("_timestamp", pa.timestamp("us"), nullable=False),
        pa.field("_hash", pa.int64(), nullable=False),
    ]
)

Row = tuple[int, int, int]


def batch(rows: list[Row]) -> pa.RecordBatch:
    numbers, times, hashes = (pa.array([row[column] for row in rows], pa.int64()) for column in range(3))
    names = pa.array([[str(n)] * (n % 3) for n, _, _ in rows], pa.list_(pa.string()))
    return pa.record_batch([numbers, names, times.view(pa.timestamp("us")), hashes], schema=SCHEMA)


def rows_of(rows: pa.RecordBatch) -> list[Row]:
    rows.validate(full=True)
    assert rows.column("names").to_pylist() == [[str(n)] * (n % 3) for n in rows.column("n").to_pylist()]
    columns = (rows.column("n"), rows.column("_timestamp").view(pa.int64()), rows.column("_hash"))
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def array(hashes: set[int]) -> Int64s:
    return np.array(sorted(hashes), np.int64)


HASHES = st.integers(0, 25)
TTL = 80


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[set[int], list[Row]] | int]:
    """Replacements of what some hashes keep, and watermarks that only advance."""
    found: list[tuple[set[int], list[Row]] | int] = []
    watermark = 0
    for _ in range(draw(st.integers(0, 25))):
        if draw(st.integers(0, 4)) == 0:
            watermark += draw(st.integers(0, 60))
            found.append(watermark)
        else:
            rows = draw(
                st.lists(
                    st.tuples(st.integers(0, 99), st.integers(watermark - 50, watermark + 50), HASHES), max_size=12
                )
            )
            found.append((draw(st.sets(HASHES, max_size=6)) | {row[2] for row in rows}, rows))
    return found


@settings(deadline=None)
@given(steps(), st.booleans())
def test_what_is_fetched_is_what_was_last_put_in(steps: list[tuple[set[int], list[Row]] | int], expires: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs, "_FIRST_TIER_ROWS", 4)
        patch.setattr(slabs, "_LARGE_ROWS", 40)
        state = KeyedState(SCHEMA, ttl_us=TTL if expires else 0, time_column="_timestamp")
        model: dict[int, list[Row]] = {}
        watermark = swept = -(10**9)
        for step in steps:
            if isinstance(step, int):
                state.expire(step)
                watermark = step
                if watermark - swept >= TTL // 8:
                    swept = watermark
            else:
                hashes, rows = step
                state.replace(array(hashes), batch(rows))
                for one in hashes:
                    model[one] = [row for row in rows if row[2] == one]
            if expires:
                # What is older than the last sweep says is gone, what is young enough for the watermark is there.
                kept = {row[2] for row in rows_of(state.fetch(array(set(model))))}
                for one in list(model):
                    touched = max((row[1] for row in model[one]), default=watermark)
                    if touched < watermark - TTL and one not in kept:
                        del model[one]
                    elif isinstance(step, int):
                        assert touched >= swept - TTL
            assert Counter(rows_of(state.fetch(np.arange(30)))) == Counter(
                row for rows in model.values() for row in rows
            )
            for one in model:
                assert rows_of(state.fetch(array({one}))) == model[one]
            assert state.rows == sum(map(len, model.values()))


def test_slabs_stay_few_and_memory_follows_what_is_kept() -> None:
    state = KeyedState(SCHEMA)
    random = np.random.default_rng(1)
    for _ in range(300):
        hashes = random.choice(20_000, 500, replace=False)
        state.replace(hashes, batch([(int(one), 0, int(one)) for one in hashes]))
    assert len(state._slabs) < 20
    assert state.nbytes < 200 * state.rows
    state.replace(np.arange(20_000), batch([]))
    assert state.rows == 0
    assert not state._slabs
    assert state.nbytes < 1 << 16


def test_hashes_without_a_time_of_their_own_are_forgotten_by_the_watermark_they_came_with() -> None:
    schema = pa.schema([("n", pa.int64()), ("_hash", pa.int64())])
    state = KeyedState(schema, ttl_us=100)

    def put(one: int) -> None:
        state.replace(np.array([one]), pa.record_batch([[one], [one]], schema=schema))

    state.expire(1000)
    put(1)
    state.expire(1090)
    put(2)
    state.expire(1120)
    assert state.fetch(np.array([1, 2])).column("n").to_pylist() == [2]


def test_a_sweep_forgets_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    state = KeyedState(SCHEMA, ttl_us=80, time_column="_timestamp")
    state.replace(np.arange(1000), batch([(one, one, one) for one in range(1000)]))
    removed: list[int] = []
    remove = state._index.remove

    def counted(hashes: Int64s) -> Int64s:
        removed.append(hashes.size)
        return remove(hashes)

    monkeypatch.setattr(state._index, "remove", counted)
    for watermark in range(80, 581, 10):
        state.expire(watermark)
    assert state.rows == 500
    assert sum(removed) == 500
