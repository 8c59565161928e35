"""Services as tasks of this process: started until they are ready, watched, and ended in the reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from penstock.common.errors import InternalError

Told = TypeVar("Told")


class Hosted:
    """What runs in this process, until it is closed."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, name: str, serve: Callable[[Callable[[Told], None]], Coroutine[Any, Any, None]]) -> Told:
        """Run a service, which is given what to call once it is ready; returns what it tells then."""
        ready: asyncio.Future[Told] = asyncio.get_running_loop().create_future()

        def tell(told: Told) -> None:
            if not ready.done():
                ready.set_result(told)

        task = asyncio.create_task(serve(tell), name=name)
        self._tasks.append(task)
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise await _reason(task)
        return ready.result()

    async def ended(self) -> Exception:
        """Wait until a service ends that should not, and return why."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return await _reason(next(iter(done)))

    async def close(self) -> None:
        """End all, the last that was started first."""
        while self._tasks:
            task = self._tasks.pop()
            task.cancel()
            await asyncio.wait((task,))


async def _reason(task: asyncio.Task[None]) -> Exception:
    error: BaseException | None = None
    with suppress(asyncio.CancelledError):
        error = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else InternalError(f"the {task.get_name()} ended by itself")
