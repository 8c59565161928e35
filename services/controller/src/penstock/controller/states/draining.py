"""How an execution is brought to its end, for the states that stop one: ask, ask harder, and at last kill.

With checkpoints there is a last one, unless the job is stopped at once: until that is complete nothing is over, and
with a failure before it there is nothing left to wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from penstock.common.jobs import StopMode
from penstock.controller.execution import Progress
from penstock.controller.records import Failure, JobConfig
from penstock.controller.states.machine import Wait
from penstock.controller.states.view import JobView

RETRY_SECONDS: Final = 0.5

_SEVERITY: Final = (StopMode.CHECKPOINT, StopMode.GRACEFUL, StopMode.IMMEDIATE, StopMode.FORCE)


_SAVING: Final = frozenset({StopMode.CHECKPOINT, StopMode.GRACEFUL})


class Context(JobView, Protocol):
    @property
    def progress(self) -> Progress | None: ...

    @property
    def stop_timeout(self) -> timedelta:
        """How long workers may take to end once nothing is left for them to do."""

    async def stop_execution(self, mode: StopMode) -> bool:
        """Ask the workers to stop, and tell whether all of them were reached; `checkpoint` has them saved, then end."""

    async def close_execution(self, *, force: bool) -> None:
        """End the workers that are left and give back their slots; reports of this generation are refused from now."""


@dataclass(frozen=True, slots=True)
class Facts:
    mode: StopMode
    asked: StopMode | None
    retry_at: float | None
    kill_at: float | None
    progress: Progress | None
    now: float


@dataclass(frozen=True, slots=True)
class Ask:
    mode: StopMode


@dataclass(frozen=True, slots=True)
class Close:
    force: bool


@dataclass(frozen=True, slots=True)
class Drained:
    """The execution is over, with what went wrong in it."""

    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Something else is wanted now; the execution is still there."""


def decide(facts: Facts) -> Ask | Close | Wait:
    progress = facts.progress
    saving = progress is not None and progress.is_saving and facts.mode in _SAVING and progress.failure is None
    if progress is None or (progress.all_ended and not saving):
        return Close(force=False)
    if facts.mode is StopMode.CHECKPOINT and progress.checkpoints is not None and progress.failure is not None:
        return Close(force=True)
    if facts.mode is StopMode.FORCE or (facts.kill_at is not None and facts.now >= facts.kill_at):
        return Close(force=True)
    if facts.retry_at is not None:
        return Ask(facts.mode) if facts.now >= facts.retry_at else Wait(_earliest(facts.retry_at, facts.kill_at))
    if facts.asked is None or _SEVERITY.index(facts.mode) > _SEVERITY.index(facts.asked):
        return Ask(facts.mode)
    return Wait(facts.kill_at)


def _earliest(first: float, second: float | None) -> float:
    return first if second is None else min(first, second)


async def drain(context: Context, derive_mode: Callable[[JobConfig], StopMode | None]) -> Drained | Interrupted:
    """Stop an execution as the job's config says at each moment; None interrupts."""
    asked: StopMode | None = None
    retry_at: float | None = None
    kill_at: float | None = None
    while True:
        mode, progress, now = derive_mode(context.config), context.progress, context.now()
        if mode is None:
            return Interrupted()
        if kill_at is None and (asked is StopMode.IMMEDIATE or _is_settled(progress)):
            kill_at = now + context.stop_timeout.total_seconds()
        match decide(Facts(mode, asked, retry_at, kill_at, progress, now)):
            case Ask(wanted):
                retry_at = None if await context.stop_execution(wanted) else context.now() + RETRY_SECONDS
                asked = wanted
            case Close(force):
                await context.close_execution(force=force)
                return Drained(progress.failure if progress else None)
            case Wait(until):
                await context.wait(until)


def _is_settled(progress: Progress | None) -> bool:
    """Whether all that is left is for the workers to end."""
    return progress is not None and (progress.is_done or progress.failure is not None)
