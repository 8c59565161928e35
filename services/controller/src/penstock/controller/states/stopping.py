"""Stopping: the job ends because the user said so, the harder the more they insist."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.jobs import JobState, StopMode
from penstock.controller.records import Failure, JobConfig
from penstock.controller.states.draining import Context, Drained, Interrupted, drain
from penstock.controller.states.machine import Move


@dataclass(frozen=True, slots=True)
class Facts:
    stop_mode: StopMode
    failure: Failure | None


def derive_mode(stop_mode: StopMode) -> StopMode:
    """How hard to stop; a stop that is taken back while it happens is carried through."""
    return stop_mode if stop_mode in {StopMode.IMMEDIATE, StopMode.FORCE} else StopMode.GRACEFUL


def decide(facts: Facts) -> Move:
    """Rows that a graceful stop promised to deliver and could not are told as a failure."""
    lost_rows = derive_mode(facts.stop_mode) is StopMode.GRACEFUL and facts.failure is not None
    if lost_rows and facts.failure is not None and facts.failure.is_fatal:
        return Move(JobState.FAILING, facts.failure)
    return Move(JobState.STOPPED, facts.failure if lost_rows else None)


def _mode_of(config: JobConfig) -> StopMode | None:
    return derive_mode(config.stop_mode)


async def run(context: Context) -> Move:
    match await drain(context, _mode_of):
        case Drained(failure):
            return decide(Facts(context.config.stop_mode, failure))
        case Interrupted():
            raise AssertionError("nothing interrupts a stop")
