"""Every event is of exactly one subtask."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.shares import Share


@given(st.integers(1, 7), st.integers(1, 60), st.integers(0, 500))
def test_shares_are_all_events_once(parallelism: int, block: int, total: int) -> None:
    shares = [Share(subtask, parallelism, block) for subtask in range(parallelism)]
    numbers = np.concatenate([share.numbers(0, share.count_below(total)) for share in shares])
    assert sorted(numbers.tolist()) == list(range(total))


@given(st.integers(1, 7), st.integers(1, 60), st.integers(0, 1000), st.integers(1, 50))
def test_numbers_are_those_of_their_indexes(parallelism: int, block: int, first: int, count: int) -> None:
    for subtask in range(parallelism):
        share = Share(subtask, parallelism, block)
        numbers = share.numbers(first, count).tolist()
        assert numbers == [share.number(index) for index in range(first, first + count)]
        assert [share.count_below(number) for number in numbers] == list(range(first, first + count))
