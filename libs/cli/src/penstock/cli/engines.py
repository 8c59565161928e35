"""The Spark engine of this process: one JVM for the compiler and for the workers."""

from __future__ import annotations

import asyncio

from penstock.spark import Engine, SparkSettings


class SharedEngine:
    """An engine that begins to start at once, and is replaced for later users when its JVM dies."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._starting = asyncio.create_task(Engine.start(settings), name="engine")
        self._ended: asyncio.Task[Exception] | None = None
        self._changing = asyncio.Lock()

    async def get(self) -> Engine:
        """The engine, once it is up."""
        async with self._changing:
            if self._ended is not None and self._ended.done():
                await (await self._starting).close()
                self._starting = asyncio.create_task(Engine.start(self._settings), name="engine")
                self._ended = None
            engine = await asyncio.shield(self._starting)
            if self._ended is None:
                self._ended = asyncio.create_task(engine.ended(), name="engine-ended")
            return engine

    async def close(self) -> None:
        """End the JVM."""
        if self._ended is not None:
            self._ended.cancel()
        if not self._starting.done():
            self._starting.cancel()
        await asyncio.wait((self._starting,))
        if not self._starting.cancelled() and self._starting.exception() is None:
            await self._starting.result().close()
