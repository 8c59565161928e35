"""Answers are known until their time has passed, within the size that is given, and never those of another key."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from penstock.worker.operators import lookup_cache
from penstock.worker.operators.lookup_cache import Answers, LookupCache


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def keys(ids: Iterable[int]) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def answers(rows: dict[int, str | None]) -> Answers:
    """Of each key its row, or None for that there is none."""
    names = list(rows.values())
    found = np.array([name is not None for name in names])
    ids = pa.array(rows, pa.int64())
    values = pa.record_batch([pa.array(list(rows), pa.int64(), mask=~found), pa.array(names, pa.string())], ["id", "n"])
    return Answers(pa.record_batch({"id": ids}), values, found)


def known(cache: LookupCache, ids: Iterable[int]) -> dict[int, str | None]:
    asked = list(ids)
    places, found = cache.find(keys(asked))
    if found is None:
        assert not places.size
        return {}
    assert found.keys.column(0).to_pylist() == [asked[place] for place in places]
    assert (found.found == np.asarray(found.values.column("n").is_valid())).all()
    return dict(zip((asked[place] for place in places), found.values.column("n").to_pylist(), strict=True))


def test_rows_and_their_absence_are_known() -> None:
    cache = LookupCache(60, 1 << 20, Clock())
    assert known(cache, [1, 2]) == {}
    cache.add(answers({1: "ann", 2: None}))
    cache.add(answers({3: "cy"}))
    assert known(cache, [3, 9, 2, 1]) == {1: "ann", 2: None, 3: "cy"}
    assert cache.rows == 3


def test_answers_are_forgotten_when_their_time_has_passed() -> None:
    clock = Clock()
    cache = LookupCache(60, 1 << 20, clock)
    cache.add(answers({1: "ann"}))
    clock.now += 30
    cache.add(answers({2: "bob"}))
    clock.now += 29.9
    assert known(cache, [1, 2]) == {1: "ann", 2: "bob"}
    clock.now += 0.2
    assert known(cache, [1, 2]) == {2: "bob"}
    cache.add(answers({1: "eve"}))
    clock.now += 30
    assert known(cache, [1, 2]) == {1: "eve"}
    clock.now += 60
    assert known(cache, [1, 2]) == {}
    assert (cache.rows, cache.nbytes) == (0, 0)


def test_answers_that_come_one_by_one_outlive_their_time_by_nothing() -> None:
    clock = Clock()
    cache = LookupCache(16, 1 << 20, clock)
    came: dict[int, float] = {}
    for number in range(200):
        cache.add(answers({number: "x"}))
        came[number] = clock.now
        clock.now += 0.25
        for key in known(cache, came):
            assert clock.now - came[key] < 16
        fresh = [key for key in came if clock.now - came[key] < 15]
        assert set(fresh) <= known(cache, came).keys()  # and are forgotten ahead of it by a page's time at most


def test_the_size_is_bounded_and_the_oldest_go_first() -> None:
    bound = 1 << 18
    cache = LookupCache(60, bound, Clock())
    for begin in range(0, 40_000, 500):
        cache.add(answers({number: "x" * 20 for number in range(begin, begin + 500)}))
        assert cache.nbytes <= bound
        assert cache.rows > 500 or begin < 1000
    assert known(cache, range(39_500, 40_000)).keys() == set(range(39_500, 40_000))
    assert known(cache, range(500)) == {}


def test_answers_larger_than_the_bound_are_not_kept() -> None:
    cache = LookupCache(60, 100, Clock())
    cache.add(answers({number: "x" * 20 for number in range(500)}))
    assert (cache.rows, cache.nbytes) == (0, 0)
    assert known(cache, [1]) == {}


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_cache, "key_hashes", lambda batch: np.asarray(batch.column(0)) % 4)
    cache = LookupCache(60, 1 << 20, Clock())
    cache.add(answers({1: "ann", 2: "bob", 5: "eve"}))
    cache.add(answers({6: "fay", 3: "cy"}))
    assert known(cache, [1, 2, 3]) == {1: "ann", 2: "bob", 3: "cy"}
    assert known(cache, [5, 6, 7]) == {}  # each shares its hash with one that was first


@pytest.mark.parametrize("seed", range(5))
def test_what_is_known_was_answered_last(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_cache, "_FULL_ROWS", 8)
    dice, clock = random.Random(seed), Clock()
    cache = LookupCache(10, 4000, clock)
    answered: dict[int, tuple[str | None, float]] = {}
    for turn in range(300):
        asked = dice.sample(range(60), dice.randint(1, 12))
        found = known(cache, asked)
        for key, name in found.items():
            assert answered[key][0] == name
            assert clock.now - answered[key][1] < 10
        missing = [key for key in asked if key not in found]
        fresh = {key: dice.choice([None, f"{key} {turn}"]) for key in missing}
        if fresh:
            cache.add(answers(fresh))
        answered |= {key: (name, clock.now) for key, name in fresh.items()}
        assert cache.nbytes <= 4000
        clock.now += dice.random()
