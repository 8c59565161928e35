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
        self._given = given
        self._starting: asyncio.Task[Engine] | None = None
        self._ended: asyncio.Task[EngineLost] | None = None
        self._changing = asyncio.Lock()

    async def get(self) -> Engine:
        """The engine, started if there is none or the last has died. A start goes on when who waits for it gives up."""
        async with self._changing:
            if self._ended is not None and self._ended.done():
                await self._drop()
            engine = self._given
            if engine is None:
                if self._starting is None or _has_failed(self._starting):
                    self._starting = asyncio.create_task(Engine.start(self._settings), name="compiler-engine")
                engine = await asyncio.shield(self._starting)
            if self._ended is None:
                self._ended = asyncio.create_task(engine.ended(), name="compiler-engine-ended")
            return engine

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
            await asyncio.wait((ended,))
        self._given = None
        starting, self._starting = self._starting, None
        if starting is not None:
            if not starting.done():
                starting.cancel()
            with suppress(asyncio.CancelledError, PenstockError):
                await (await starting).close()


def _has_failed(starting: asyncio.Task[Engine]) -> bool:
    return starting.done() and (starting.cancelled() or starting.exception() is not None)
