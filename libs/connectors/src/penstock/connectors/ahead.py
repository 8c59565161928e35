"""Work in a thread, one result ahead of its reader, of which a cancelled read loses none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """The results of calls of a function, each made in a thread while the one before is dealt with; None ends them."""

    def __init__(self, produce: Callable[[], T | None]) -> None:
        self._produce = produce
        self._next: asyncio.Future[T | None] | None = None
        self._ended = False

    async def read(self) -> T | None:
        """The next result; an error is raised again by every later read."""
        if self._ended:
            return None
        if self._next is None:
            self._next = self._begin()
        result = await asyncio.shield(self._next)
        self._ended = result is None
        self._next = None if self._ended else self._begin()
        return result

    async def close(self) -> None:
        """Returns when no thread is at work any more."""
        self._ended = True
        if self._next is not None:
            await asyncio.gather(self._next, return_exceptions=True)

    def _begin(self) -> asyncio.Future[T | None]:
        return asyncio.ensure_future(asyncio.to_thread(self._produce))
