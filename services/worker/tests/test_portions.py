from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.portions import Portion


def settled(seconds_a_row: float, most_rows: int = 32768) -> int:
    portion = Portion(most_rows)
    for _ in range(50):
        portion.learn(portion.rows, portion.rows * seconds_a_row)
    return portion.rows


def test_fast_sink_gets_whole_batches() -> None:
    assert settled(1e-7) == 32768


def test_slow_sink_gets_what_it_writes_in_a_moment() -> None:
    assert 50 <= settled(0.001) <= 200


def test_sink_that_takes_seconds_for_a_row_gets_one_at_a_time() -> None:
    assert settled(3.0) == 1


def test_small_batches_do_not_make_a_portion_grow() -> None:
    portion = Portion(32768)
    before = portion.rows
    portion.learn(1, 0.0)
    assert portion.rows == before


@given(st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 100)), max_size=30), st.integers(1, 100_000))
def test_portion_stays_between_one_row_and_a_batch(writes: list[tuple[int, float]], most: int) -> None:
    portion = Portion(most)
    for rows, seconds in writes:
        portion.learn(rows, seconds)
        assert 1 <= portion.rows <= most
