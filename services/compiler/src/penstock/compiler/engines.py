"""The compiler's engine: one JVM, replaced for the next request when it dies."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.common.errors import PenstockError
from penstock.spark import Engine, EngineLost, SparkSettings


class Engines:
    """Holds one engine at a time. One that was given is not closed here; one that was started here is."""

    def __init__(self, settings: SparkSettings, given: Engine | None = None) -> None:
        self._settings = settings
        self._engine = given
        self._is_own = False
        self._ended: asyncio.Task[EngineLost] | None = None
        self._changing = asyncio.Lock()

    async def get(self) -> Engine:
        """The engine, started if there is none or the last has died."""
        async with self._changing:
            if self._ended is not None and self._ended.done():
                await self._drop()
            if self._engine is None:
                self._engine, self._is_own = await Engine.start(self._settings), True
            if self._ended is None:
                self._ended = asyncio.create_task(self._engine.ended(), name="compiler-engine-ended")
            return self._engine

    async def check(self) -> None:
        """Raises when the engine does not answer."""
        await (await self.get()).status()

    async def close(self) -> None:
        """Ends the engine, if it is the compiler's own."""
        async with self._changing:
            await self._drop()

    async def _drop(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.cancel()
            with suppress(asyncio.CancelledError, PenstockError):
                await ended
        engine, self._engine = self._engine, None
        if engine is not None and self._is_own:
            await engine.close()
