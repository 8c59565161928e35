"""Restarting: the job is started anew, after a checkpoint (safe) or at once, from the last one (force).

The user wants it so, or the job has to leave a node that is being drained, which is always safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.controller.records import JobConfig, JobStatus
from penstock.controller.states import draining
from penstock.controller.states.draining import Interrupted, drain
from penstock.controller.states.machine import Move


class Context(draining.Context, Protocol):
    @property
    def restart_mode(self) -> RestartMode:
        """How this restart was begun."""


@dataclass(frozen=True, slots=True)
class Facts:
    interrupted: bool


def decide(facts: Facts) -> Move:
    """Whatever failed while it ended, starting over is what was asked for."""
    return Move(JobState.STOPPING if facts.interrupted else JobState.SCHEDULING)


def derive_restart_mode(config: JobConfig, status: JobStatus, begun: RestartMode = RestartMode.SAFE) -> RestartMode:
    """How to restart: as the user says, if they have asked since the job was last started."""
    return config.restart_mode if config.restart_nonce != status.restart_nonce else begun


def derive_mode(config: JobConfig, mode: RestartMode) -> StopMode | None:
    if config.stop_mode is not StopMode.NONE:
        return None
    return StopMode.IMMEDIATE if mode is RestartMode.FORCE else StopMode.CHECKPOINT


async def run(context: Context) -> Move:
    def mode_of(config: JobConfig) -> StopMode | None:
        return derive_mode(config, derive_restart_mode(config, context.status, context.restart_mode))

    outcome = await drain(context, mode_of)
    return decide(Facts(interrupted=isinstance(outcome, Interrupted)))
