"""Created: the job is known, and nothing has been done for it."""

from __future__ import annotations

from penstock.common.jobs import JobState
from penstock.controller.states.machine import Move


async def run(_context: object) -> Move:
    return Move(JobState.COMPILING)
