"""Failing: nothing can make the job go on; what is left of it is killed."""

from __future__ import annotations

from typing import Protocol

from penstock.common.jobs import JobState
from penstock.controller.states.machine import Move


class Context(Protocol):
    async def close_execution(self, *, force: bool) -> None: ...


async def run(context: Context) -> Move:
    await context.close_execution(force=True)
    return Move(JobState.FAILED)
