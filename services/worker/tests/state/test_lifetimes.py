from __future__ import annotations

from penstock.worker.state.lifetimes import Lifetime, SteadyClock


def test_a_steady_clock_never_goes_back() -> None:
    times = iter([5, 7, 3, 6, 9])
    clock = SteadyClock(lambda: next(times))
    assert [clock() for _ in range(4)] == [7, 7, 7, 9]


def test_by_event_time_only_a_watermark_says_how_late_it_is() -> None:
    assert Lifetime(10).moment() is None
    assert Lifetime(10).moment(3) == 3
    assert Lifetime(10, lambda: 8).moment(3) == 8
