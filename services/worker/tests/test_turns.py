from __future__ import annotations

from penstock.worker.alignment import Alignment
from penstock.worker.partition_times import PartitionTimes
from penstock.worker.signals import Watermark
from penstock.worker.turns import Turns


def turns_of(
    *watermarks: int | None, idle_seconds: float | None = None, alignment: Alignment | None = None
) -> tuple[Turns, PartitionTimes]:
    times = PartitionTimes(len(watermarks), alignment or Alignment([0], None), 0)
    for partition, watermark in enumerate(watermarks):
        times.observed(partition, watermark)
    times.turn()
    return Turns(len(watermarks), times, idle_seconds), times


def test_those_ahead_of_the_slowest_are_held() -> None:
    turns, times = turns_of(5, 3, 3)
    assert turns.held() == {0}
    times.observed(1, 9)
    assert turns.held() == {0, 1}


def test_one_without_a_row_is_the_slowest() -> None:
    assert turns_of(5, None)[0].held() == {0}
    assert turns_of(None, None)[0].held() == set()


def test_a_slow_partition_that_has_nothing_now_holds_nobody_until_it_gives_rows_again() -> None:
    turns, _ = turns_of(5, 3)
    held = turns.held()
    assert turns.patience(held) == 0.1
    turns.asked(held, 0.1, 0.0)
    assert turns.held() == set()
    turns.asked(turns.held(), 5.0, 0.0, answered=0)
    assert turns.held() == set()
    turns.asked(turns.held(), 0.0, 0.0, answered=1)
    assert turns.held() == {0}


def test_a_partition_that_ended_holds_nobody() -> None:
    turns, times = turns_of(5, 3, 4)
    turns.end(1)
    times.end(1)
    assert turns.held() == {0}


def test_idle_is_who_was_asked_in_vain_for_long_enough_and_is_told_once() -> None:
    turns, _ = turns_of(5, 3, idle_seconds=2.0)
    held = turns.held()
    assert turns.asked(held, 1.5, 0.0) == ()
    assert turns.asked(frozenset(), 0.75, 0.0, answered=0) == (1,)  # 0 was held before, and not asked
    assert turns.asked(frozenset(), 1.5, 0.0) == ()
    assert turns.patience(frozenset()) == 0.5
    assert turns.asked(frozenset(), 0.5, 0.0) == (0,)
    assert turns.patience(frozenset()) is None


def test_time_that_the_worker_is_busy_is_not_silence() -> None:
    turns, _ = turns_of(1, idle_seconds=1.0)
    for _ in range(9):
        assert turns.asked(frozenset(), 0.0, 3600.0) == ()
    assert turns.asked(frozenset(), 0.11, 3600.0) == (0,)


def test_a_single_partition_waits_for_nobody_and_has_no_deadline() -> None:
    turns, _ = turns_of(5)
    assert turns.held() == set()
    assert turns.patience(frozenset()) is None


def test_a_subtask_too_far_ahead_of_another_waits_until_that_advances_ends_or_is_idle() -> None:
    for relief in ("advance", "leave", "idle"):
        alignment = Alignment([0, 1], 10)
        turns, _ = turns_of(25, alignment=alignment)
        alignment.tell(1, Watermark(14))
        assert turns.holds_all(turns.held())
        match relief:
            case "advance":
                alignment.tell(1, Watermark(15))
            case "leave":
                alignment.leave(1)
            case "idle":
                alignment.tell(1, Watermark(None))
        assert turns.held() == set()


def test_partitions_of_the_slowest_subtask_go_on() -> None:
    alignment = Alignment([0, 1], 10)
    turns, _ = turns_of(25, 14, alignment=alignment)
    assert turns.held() == {0, 1}  # the other subtask has no watermark yet
    alignment.tell(1, Watermark(30))
    assert turns.held() == {0}
    turns.asked(turns.held(), 1.0, 0.0)
    assert turns.held() == {0}  # it has nothing now, but what is further ahead than the drift waits all the same


def test_rows_behind_what_others_have_passed_in_the_meantime_are_late() -> None:
    alignment = Alignment([0, 1], None)
    _, times = turns_of(5, 3, alignment=alignment)
    assert times.before(1) == 3
    times.idle(1)
    assert times.turn() == Watermark(5)
    assert times.before(1) == 5
    times.idle(0)
    times.turn()
    alignment.tell(1, Watermark(8))
    assert times.before(1) == 8
