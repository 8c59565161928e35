"""State that is larger than its budget: the same rows, most of them in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.worker.state import budget as budgets
from penstock.worker.state.bins import Bins
from penstock.worker.state.budget import Budget
from penstock.worker.state.keyed import KeyedState

KEYED = pa.schema([("text", pa.string()), ("n", pa.int64()), ("_hash", pa.int64())])
TIMED = pa.schema([("text", pa.string()), ("at", pa.timestamp("us"))])


def keyed(hashes: np.ndarray[tuple[int], np.dtype[np.int64]], version: int) -> pa.RecordBatch:
    texts = [f"{version}-{number}" * 20 for number in hashes.tolist()]
    return pa.record_batch([texts, np.full(hashes.size, version), hashes], schema=KEYED)


def test_keyed_state_four_times_its_budget_is_right_and_mostly_in_files(tmp_path: Path) -> None:
    budget = Budget(4 << 20, tmp_path)
    state, plain = KeyedState(KEYED, budget=budget), KeyedState(KEYED)
    random = np.random.default_rng(7)
    for version in range(120):
        hashes = np.unique(random.integers(0, 60_000, 3000))
        kept = keyed(hashes[hashes % 11 != version % 11], version)
        state.replace(hashes, kept)
        plain.replace(hashes, kept)
    assert plain.nbytes > 4 * (4 << 20)
    assert state.memory_bytes < 8 << 20  # the index and what came last stay
    assert budget.spilled_bytes > 0
    everything = np.arange(60_000)
    assert state.fetch(everything).sort_by("_hash").equals(plain.fetch(everything).sort_by("_hash"))
    assert not list(tmp_path.iterdir()), "files have no names"


def test_bins_are_moved_to_files_the_latest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "_LEAST_BYTES", 0)
    bins, plain = Bins("at", 10, Budget(50_000, tmp_path)), Bins("at", 10)
    for number in range(100):
        times = pa.array(np.arange(number * 10, number * 10 + 50)).cast(pa.timestamp("us"))
        batch = pa.record_batch([["x" * 100] * 50, times], schema=TIMED)
        bins.add([batch])
        plain.add([batch])
    assert plain.nbytes > 4 * 50_000
    for moment in (15, 300, 2000):
        found = [(start, pa.Table.from_batches(batches)) for start, batches in bins.take_until(moment)]
        wanted = [(start, pa.Table.from_batches(batches)) for start, batches in plain.take_until(moment)]
        assert found == wanted
    assert bins.rows == 0


def test_holders_share_a_budget(tmp_path: Path) -> None:
    budget = Budget(1 << 20, tmp_path)
    states = [KeyedState(KEYED, budget=budget) for _ in range(3)]
    for version in range(30):
        for state in states:
            state.replace(hashes := np.arange(version * 1000, version * 1000 + 1000), keyed(hashes, version))
    assert sum(state.memory_bytes for state in states) < 4 << 20
    for state in states:
        assert state.rows == 30_000
