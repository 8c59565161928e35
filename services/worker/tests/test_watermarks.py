from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.signals import START_OF_TIME, Watermark
from penstock.worker.watermarks import Watermarks

STREAMS = range(3)


@given(st.lists(st.tuples(st.sampled_from(STREAMS), st.one_of(st.integers(0, 50), st.sampled_from(["idle", "end"])))))
def test_the_watermark_is_the_least_of_those_that_count_and_never_goes_back(
    moves: list[tuple[int, int | str]],
) -> None:
    watermarks = Watermarks(STREAMS)
    at = dict.fromkeys(STREAMS, START_OF_TIME)
    idle: set[int] = set()
    told: list[int | None] = [START_OF_TIME]
    seen = [START_OF_TIME]
    for stream, move in moves:
        if stream not in at:
            continue
        match move:
            case int():
                watermarks.advance(stream, move)
                seen.append(move)
                at[stream] = max(at[stream], move)
                idle.discard(stream)
            case "idle":
                watermarks.idle(stream)
                idle.add(stream)
            case _:
                watermarks.end(stream)
                del at[stream]
                idle.discard(stream)
        while (turn := watermarks.turn()) is not None:
            assert turn.at != told[-1]
            told.append(turn.at)
        counting = [at[one] for one in at if one not in idle]
        highest = max(one for one in told if one is not None)
        # When all have ended nothing is idle: whoever follows waits for the end.
        silent = None if at else highest
        assert told[-1] == (max(min(counting), highest) if counting else silent)
        if not counting:
            assert highest == max(seen)
    reached = [one for one in told if one is not None]
    assert reached == sorted(reached)


def test_a_stream_that_was_idle_is_told_to_count_again_even_without_progress() -> None:
    watermarks = Watermarks([0])
    watermarks.advance(0, 7)
    assert watermarks.turn() == Watermark(7)
    watermarks.idle(0)
    assert watermarks.turn() == Watermark(None)
    assert watermarks.turn() is None
    watermarks.advance(0, 3)
    assert watermarks.turn() == Watermark(7)


def test_a_new_stream_holds_the_watermark_where_it_is() -> None:
    watermarks = Watermarks([0])
    watermarks.advance(0, 7)
    assert watermarks.turn() == Watermark(7)
    watermarks.add(1)
    watermarks.advance(0, 9)
    assert watermarks.turn() is None
    watermarks.advance(1, 8)
    assert watermarks.turn() == Watermark(8)


def test_streams_that_have_all_ended_are_not_idle() -> None:
    watermarks = Watermarks([0, 1])
    watermarks.advance(0, 7)
    watermarks.end(1)
    assert watermarks.turn() == Watermark(7)
    watermarks.end(0)
    assert watermarks.turn() is None


def test_no_stream_at_all_is_idle() -> None:
    assert Watermarks[int]().turn() == Watermark(None)
