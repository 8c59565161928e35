"""Work on several items at a time whose results are used one after another, in the order of the items."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class OrderedWork(Generic[Item, Result]):
    """Calls `work` in threads and then `use` on its results in order; an error is raised by the next call here."""

    def __init__(self, work: Callable[[Item], Result], use: Callable[[Result], None], in_flight: int) -> None:
        self._work = work
        self._use = use
        self._in_flight = in_flight
        self._steps: deque[asyncio.Task[None]] = deque()

    async def add(self, item: Item) -> None:
        """Takes an item in; waits while too many are under way."""
        await self._finish_until(self._in_flight - 1)
        before = self._steps[-1] if self._steps else None
        self._steps.append(asyncio.create_task(self._step(item, before)))

    async def finish(self) -> None:
        """Returns when every item is done."""
        await self._finish_until(0)

    async def close(self) -> None:
        """Returns when nothing is under way any more; errors are not raised."""
        await asyncio.gather(*self._steps, return_exceptions=True)
        self._steps.clear()

    async def _finish_until(self, count: int) -> None:
        while len(self._steps) > count:
            await asyncio.shield(self._steps[0])  # a caller that is cancelled leaves the step to itself
            self._steps.popleft()

    async def _step(self, item: Item, before: asyncio.Task[None] | None) -> None:
        result = await asyncio.to_thread(self._work, item)
        if before is not None:
            await before
        await asyncio.to_thread(self._use, result)
