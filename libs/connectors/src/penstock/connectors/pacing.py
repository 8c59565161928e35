"""Keeping to a rate without drift: each event has its time, counted from the start, and lateness is made up for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

TICK_SECONDS: Final = 0.005
"""About how often a paced source emits: often enough for latency, seldom enough to have rows to emit together."""

_OVERSLEPT_SECONDS: Final = 0.05
"""By how much a sleep may be too long and still be made up for."""


class Pacer:
    """The times of numbered events, of which one is due when the pacer begins: the first, unless it is told another."""

    def __init__(
        self,
        per_second: float,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._tick_seconds = tick_seconds
        self._started_at: float | None = None
        self._first = 0
        self._woken_at = float("-inf")

    def begin(self, number: int = 0) -> None:
        """An event is due now, and those before it were; without this, the first is when the pacer is first asked."""
        self._started_at = self._clock()
        self._first = number

    def due(self) -> int:
        """How many events are due by now: those with a number less than this."""
        return self._first + int((self._clock() - self._start()) * self._per_second) + 1

    async def wait_for(self, number: int) -> None:
        """Returns when an event is due, at the earliest one tick after the last time."""
        at = max(self._start() + (number - self._first) / self._per_second, self._woken_at + self._tick_seconds)
        while (remaining := at - self._clock()) > 0:
            await self._sleep(remaining)
        self._woken_at = self._clock()

    def _start(self) -> float:
        if self._started_at is None:
            self._started_at = self._clock()
        return self._started_at


class Throttle:
    """Lets amounts through at a rate; a sleep that was too long is made up for, time without use is not."""

    def __init__(self, per_second: float, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = float("-inf")

    async def take(self, amount: int) -> None:
        """Returns when an amount is through."""
        now = self._clock()
        if now - self._free_at > _OVERSLEPT_SECONDS:
            self._free_at = now
        self._free_at += amount / self._per_second
        while (remaining := self._free_at - self._clock()) > 0:
            await self._sleep(remaining)
