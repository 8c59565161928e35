"""Restarting: the user wants the job started over, after what is on its way has arrived (safe) or at once (force)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.controller.records import JobConfig
from penstock.controller.states.draining import Context, Interrupted, drain
from penstock.controller.states.machine import Move


@dataclass(frozen=True, slots=True)
class Facts:
    interrupted: bool


def decide(facts: Facts) -> Move:
    """Whatever failed while it ended, starting over is what was asked for."""
    return Move(JobState.STOPPING if facts.interrupted else JobState.SCHEDULING)


def derive_mode(config: JobConfig) -> StopMode | None:
    if config.stop_mode is not StopMode.NONE:
        return None
    return StopMode.IMMEDIATE if config.restart_mode is RestartMode.FORCE else StopMode.GRACEFUL


async def run(context: Context) -> Move:
    outcome = await drain(context, derive_mode)
    return decide(Facts(interrupted=isinstance(outcome, Interrupted)))
