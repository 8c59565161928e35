"""What every state sees of its job, and how one runs work that what is wanted may cut short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

from penstock.common.errors import PenstockError
from penstock.controller.records import Failure, JobConfig, JobStatus

_Result = TypeVar("_Result")


class JobView(Protocol):
    """The least that a state needs."""

    @property
    def config(self) -> JobConfig:
        """What is wanted now; it can change whenever a state waits."""

    @property
    def status(self) -> JobStatus: ...

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""

    def wake(self) -> None: ...

    async def wait(self, until: float | None) -> None:
        """Return once something has happened since the last wait, or at a time."""


class Attempt(Generic[_Result]):
    """Work under way: a result, a failure, or neither yet."""

    def __init__(self, task: asyncio.Task[_Result]) -> None:
        self._task = task

    @property
    def is_done(self) -> bool:
        return self._task.done() and self.failure is None

    @property
    def failure(self) -> Failure | None:
        """Why the work failed; raises what is not an error of the project."""
        if not self._task.done():
            return None
        try:
            self._task.result()
        except PenstockError as error:
            return Failure.of(error)
        return None


@asynccontextmanager
async def attempting(view: JobView, work: Coroutine[Any, Any, _Result]) -> AsyncIterator[Attempt[_Result]]:
    """Do some work while the block lasts; its end wakes the job."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda _: view.wake())
    try:
        yield Attempt(task)
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # seen by the block, or of no interest any more
