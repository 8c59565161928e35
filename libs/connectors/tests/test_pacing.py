"""Rates are kept without drift, on a clock of the test's own."""

from __future__ import annotations

from penstock.connectors.pacing import Pacer, Throttle


class FakeTime:
    """A clock that moves only while someone sleeps, each time a little too long."""

    def __init__(self, oversleep: float = 0.0) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self._oversleep = oversleep

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + self._oversleep


async def test_the_first_event_is_due_at_once() -> None:
    time = FakeTime()
    pacer = Pacer(10, clock=time.clock, sleep=time.sleep)
    await pacer.wait_for(0)
    assert (time.slept, pacer.due()) == ([], 1)


async def test_a_pacer_begins_with_any_event_and_does_not_hurry() -> None:
    time = FakeTime()
    pacer = Pacer(10, clock=time.clock, sleep=time.sleep)
    pacer.begin(1000)
    time.now += 1
    assert pacer.due() == 1011
    await pacer.wait_for(1020)
    assert (time.now, pacer.due()) == (102.0, 1021)


async def test_lateness_is_made_up_for() -> None:
    time = FakeTime(oversleep=0.003)
    pacer = Pacer(1000, clock=time.clock, sleep=time.sleep)
    emitted = 0
    while time.now < 110:
        await pacer.wait_for(emitted)
        emitted = pacer.due()
    assert 10_000 <= emitted <= 10_010


async def test_events_that_are_close_come_together() -> None:
    time = FakeTime()
    pacer = Pacer(1000, clock=time.clock, sleep=time.sleep, tick_seconds=0.005)
    emitted = wakes = 0
    while time.now < 101:
        await pacer.wait_for(emitted)
        emitted, wakes = pacer.due(), wakes + 1
    assert 199 <= wakes <= 202


async def test_a_rare_event_is_waited_for() -> None:
    time = FakeTime()
    pacer = Pacer(0.5, clock=time.clock, sleep=time.sleep)
    await pacer.wait_for(0)
    await pacer.wait_for(3)
    assert (time.now, pacer.due()) == (106.0, 4)


async def test_a_throttle_takes_as_long_as_its_rate_says_whatever_sleep_does() -> None:
    time = FakeTime(oversleep=0.002)
    throttle = Throttle(1000, clock=time.clock, sleep=time.sleep)
    for _ in range(100):
        await throttle.take(100)
    assert 110 <= time.now <= 110.01


async def test_a_throttle_does_not_make_up_for_idle_time() -> None:
    time = FakeTime()
    throttle = Throttle(100, clock=time.clock, sleep=time.sleep)
    await throttle.take(100)
    time.now += 50
    await throttle.take(100)
    assert time.now == 152.0
