from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.state import budget as budgets
from penstock.worker.state import log as logs
from penstock.worker.state import slabs
from penstock.worker.state.budget import Budget
from penstock.worker.state.log import KeyedLog

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        pa.field("_timestamp", pa.timestamp("us"), nullable=False),
        pa.field("_hash", pa.int64(), nullable=False),
    ]
)
Row = tuple[str, int, int]


def batch(rows: list[Row]) -> pa.RecordBatch:
    names, times, hashes = zip(*rows, strict=True) if rows else ((), (), ())
    times = pa.array(times, pa.int64()).view(pa.timestamp("us"))
    return pa.record_batch([pa.array(names, pa.string()), times, pa.array(hashes, pa.int64())], schema=SCHEMA)


def rows_of(rows: pa.RecordBatch) -> list[Row]:
    rows.validate(full=True)
    columns = (rows.column(0), rows.column(1).view(pa.int64()), rows.column(2))
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.text("ab", max_size=2), st.integers(0, 100), st.integers(0, 12)), max_size=12),
        st.integers(0, 120),
    ),
    max_size=30,
)


@given(STEPS, st.sampled_from((0, 1, 16)), st.integers(1, 6), st.integers(1, 4))
@settings(deadline=None)
def test_what_was_added_is_found_until_it_is_too_old(
    steps: list[list[Row] | int], sparse: int, looks: int, waiting: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_SPARSE", sparse)
        patch.setattr(logs, "_MOST_LOOKS", looks)
        patch.setattr(logs, "_MOST_WAITING", waiting)
        patch.setattr(slabs, "_FIRST_TIER_ROWS", 2)
        patch.setattr(slabs, "_TIER_SLABS", 3)
        log, added, before = KeyedLog(SCHEMA, "_timestamp"), list[Row](), 0
        for step in steps:
            if isinstance(step, int):
                before = max(before, step)
                log.expire(before, 1)
            else:
                log.add(batch(step))
                added += step
            for hashes in ([0, 3, 7], list(range(13))):
                found = rows_of(log.fetch(np.array(hashes)))
                assert found == sorted(row for row in added if row[2] in hashes and row[1] >= before)


def test_rows_that_are_too_old_are_forgotten_though_their_hash_gets_new_ones() -> None:
    log = KeyedLog(SCHEMA, "_timestamp")
    for time in range(20_000):
        log.add(batch([("x", time, 5)]))
        log.expire(time - 100, 100)
    assert log.rows < 500
    assert log.nbytes < 200_000


def test_rows_are_indexed_when_they_are_asked_for_much_or_often() -> None:
    log = KeyedLog(SCHEMA, "_timestamp")
    log.add(batch([("x", 1, key) for key in range(1000)]))
    for _ in range(8):
        assert rows_of(log.fetch(np.array([5, 2000]))) == [("x", 1, 5)]
        assert not len(log._index)
    assert rows_of(log.fetch(np.array([5]))) == [("x", 1, 5)]
    assert len(log._index) == 1000
    log.add(batch([("y", 2, key) for key in range(1000)]))
    assert len(log.fetch(np.arange(100))) == 200
    assert not log._waiting


def test_rows_that_nobody_asks_for_are_forgotten_without_an_index() -> None:
    log = KeyedLog(SCHEMA, "_timestamp")
    for time in range(0, 10_000, 100):
        log.add(batch([("x", time + key, key) for key in range(100)]))
        log.expire(time - 1000, 1000)
    assert not len(log._index)
    assert log.rows <= 1400


def test_a_hash_with_many_rows_has_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MOST_WAITING", 0)
    log = KeyedLog(SCHEMA, "_timestamp")
    for time in range(1000):
        log.add(batch([("x", time, 5)]))
    number, runs = int(log._index.find(np.array([5]))[0]), 0
    while number >= 0:
        number, runs = int(log._runs.table["older"][number]), runs + 1
    assert runs <= 11


def test_rows_are_moved_to_files_and_still_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "_LEAST_BYTES", 0)
    log = KeyedLog(SCHEMA, "_timestamp", Budget(100_000, tmp_path))
    for number in range(200):
        log.add(batch([(f"row {number} {key}", number, key) for key in range(number % 7, 100, 3)]))
    assert log.memory_bytes < log.nbytes - 100_000
    assert len(rows_of(log.fetch(np.arange(100)))) == log.rows == sum(len(range(n % 7, 100, 3)) for n in range(200))
