"""Finishing: every task is done; the workers end by themselves, or are ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from penstock.common.jobs import JobState
from penstock.controller.execution import Progress
from penstock.controller.states.machine import Move, Wait
from penstock.controller.states.view import JobView


class Context(JobView, Protocol):
    @property
    def progress(self) -> Progress | None: ...

    @property
    def entered_at(self) -> float: ...

    @property
    def stop_timeout(self) -> timedelta: ...

    async def close_execution(self, *, force: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Facts:
    progress: Progress | None
    due_at: float
    now: float


def decide(facts: Facts) -> Move | Wait:
    if facts.progress is None or facts.progress.all_ended or facts.now >= facts.due_at:
        return Move(JobState.FINISHED)
    return Wait(facts.due_at)


async def run(context: Context) -> Move:
    due_at = context.entered_at + context.stop_timeout.total_seconds()
    while True:
        match decide(Facts(context.progress, due_at, context.now())):
            case Move() as move:
                await context.close_execution(force=False)
                return move
            case Wait(until):
                await context.wait(until)
