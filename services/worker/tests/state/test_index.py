from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.state.index import ABSENT, HashIndex, Int64s, are_among, distinct

SPREAD = 0x9E3779B97F4A7C15
INVERSE = pow(SPREAD, -1, 2**64)


def at_one_place(number: int) -> int:
    """A hash whose home is the last slot of a table of any size, as that of all others of these."""
    wanted = (2**64 - 1 - number) * INVERSE % 2**64
    return wanted - 2**64 if wanted >= 2**63 else wanted


HASHES = st.one_of(st.integers(0, 40).map(at_one_place), st.integers(-5, 40), st.integers(-(2**63), 2**63 - 1))
STEPS = st.lists(
    st.tuples(st.sampled_from(["insert", "remove", "move", "put", "find"]), st.sets(HASHES, max_size=60)), max_size=30
)


def array(hashes: list[int]) -> Int64s:
    return np.array(hashes, np.int64)


@settings(deadline=None)
@given(STEPS)
def test_the_index_says_what_a_dictionary_says(steps: list[tuple[str, set[int]]]) -> None:
    index, model, location = HashIndex(), dict[int, int](), 0
    for action, chosen in steps:
        present, absent = sorted(chosen & model.keys()), sorted(chosen - model.keys())
        match action:
            case "insert":
                locations = range(location, location := location + len(absent))
                index.insert(array(absent), array(list(locations)))
                model.update(zip(absent, locations, strict=True))
            case "remove":
                assert sorted(index.remove(array(sorted(chosen)))) == sorted(model.pop(one) for one in present)
            case "move":
                locations = range(location, location := location + len(present))
                index.move(array(present), array(list(locations)))
                model.update(zip(present, locations, strict=True))
            case "put":
                new = dict(zip(sorted(chosen), range(location, location := location + len(chosen)), strict=True))
                former = index.put(array(list(new)), array(list(new.values())))
                assert former.tolist() == [model[one] for one in present]
                model.update(new)
            case _:
                pass
        everything = sorted(chosen | model.keys())
        assert index.find(array(everything)).tolist() == [model.get(one, ABSENT) for one in everything]
        assert len(index) == len(model)


def test_the_index_grows_and_shrinks_with_what_it_holds() -> None:
    index = HashIndex()
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 200_000)
    empty = index.nbytes
    for start in range(0, hashes.size, 1000):
        index.insert(hashes[start : start + 1000], np.arange(start, start + 1000))
    assert (index.find(hashes) == np.arange(hashes.size)).all()
    assert index.nbytes <= 100 * hashes.size
    index.remove(hashes[:-100])
    assert index.nbytes <= 2 * empty
    assert (index.find(hashes[-100:]) == np.arange(hashes.size - 100, hashes.size)).all()


def test_coming_and_going_does_not_grow_the_index() -> None:
    index = HashIndex()
    for number in range(300):
        hashes = np.random.default_rng(number).integers(-(2**63), 2**63 - 1, 300)
        index.insert(hashes, np.arange(hashes.size))
        index.remove(hashes)
    assert len(index) == 0
    assert index.nbytes < 1 << 16


@given(st.lists(st.one_of(st.integers(-3, 3), HASHES)))
def test_distinct_hashes_are_each_there_once_in_order(hashes: list[int]) -> None:
    assert distinct(array(hashes)).tolist() == sorted(set(hashes))


def test_hashes_are_found_among_others() -> None:
    hashes = np.array([5, -3, 7, 5, 2**62], np.int64)
    assert are_among(hashes, np.array([7, 5, 7], np.int64)).tolist() == [True, False, True, True, False]
    assert not are_among(hashes, np.empty(0, np.int64)).any()
    assert are_among(np.empty(0, np.int64), hashes).tolist() == []
