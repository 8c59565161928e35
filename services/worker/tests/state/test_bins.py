from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.state.bins import Bins

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string()), pa.field("_window", pa.timestamp("us"), nullable=False)])

Rows = list[tuple[int, int]]


def batch(rows: Rows) -> pa.RecordBatch:
    numbers = pa.array([n for n, _ in rows], pa.int64())
    times = pa.array([time for _, time in rows], pa.int64()).view(pa.timestamp("us"))
    return pa.record_batch([numbers, numbers.cast(pa.string()), times], schema=SCHEMA)


def rows_of(batches: list[pa.RecordBatch]) -> Rows:
    for one in batches:
        one.validate(full=True)
        assert one.column("name").to_pylist() == [str(n) for n in one.column("n").to_pylist()]
    return [
        row
        for one in batches
        for row in zip(one.column("n").to_pylist(), one.column(2).view(pa.int64()).to_pylist(), strict=True)
    ]


TIMES = st.one_of(st.integers(-50, 50), st.integers(-(10**15), 10**15))
STEPS = st.lists(st.one_of(st.lists(st.tuples(st.integers(0, 9), TIMES), max_size=30), TIMES), max_size=20)


@settings(deadline=None)
@given(STEPS, st.sampled_from([1, 7, 10, 1000]))
def test_bins_give_back_what_was_filed_before_a_moment_in_the_order_of_bins_and_rows(
    steps: list[Rows | int], width: int
) -> None:
    bins = Bins("_window", width)
    model: dict[int, Rows] = defaultdict(list)
    for step in steps:
        if isinstance(step, list):
            bins.add([batch(step)])
            for n, time in step:
                model[time // width * width].append((n, time))
        else:
            expected = []
            for start in sorted(model):
                if early := [row for row in model[start] if row[1] < step]:
                    expected.append((start, early))
                model[start] = [row for row in model[start] if row[1] >= step]
            assert [(start, rows_of(batches)) for start, batches in bins.take_until(step)] == expected
        model = defaultdict(list, {start: rows for start, rows in model.items() if rows})
        assert list(bins.starts) == sorted(model)
        assert bins.rows == sum(map(len, model.values()))
        assert (bins.nbytes > 0) == (bins.rows > 0)


def test_rows_of_one_bin_are_not_copied() -> None:
    bins = Bins("_window", 10)
    one = batch([(n, n % 10) for n in range(100)])
    bins.add([one])
    assert bins[0].batches[0].column(0).buffers()[1].address == one.column(0).buffers()[1].address


def test_a_row_far_ahead_does_not_hold_the_memory_of_its_batch() -> None:
    bins = Bins("_window", 10)
    for _ in range(100):
        bins.add([batch([*((n, n % 30) for n in range(1000)), (1, 10**12)])])
    bins.take_until(1000)
    held = sum(one.get_total_buffer_size() for one in bins[10**12].batches)
    assert bins.rows == 100
    assert held < 100 * 100


def test_bins_say_what_has_come_since_they_were_merged() -> None:
    bins = Bins("_window", 10)
    bins.add([batch([(n, n % 20) for n in range(100)])])
    assert (bins[0].rows, bins[0].fresh_rows) == (50, 50)
    bins.pop(0)
    bins.add_merged([batch([(1, 5)])])
    assert (bins[0].rows, bins[0].fresh_rows, bins[10].fresh_rows) == (1, 0, 50)
    bins.add([batch([(1, 6)])])
    assert (bins[0].rows, bins[0].fresh_rows) == (2, 1)
    assert bins.rows == 52


def test_many_bins_of_a_batch_share_few_copies() -> None:
    bins = Bins("_window", 1)
    bins.add([batch([(n, n) for n in np.random.default_rng(1).permutation(5000).tolist()])])
    addresses = {bins[start].batches[0].column(0).buffers()[1].address for start in bins.starts}
    assert len(bins.starts) == 5000
    assert len(addresses) < 20
    assert all(a < b for a, b in pairwise(bins.starts))
