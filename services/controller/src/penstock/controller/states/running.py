"""Running: every task has started; watches for what is wanted, what failed and what is done, and has it saved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from penstock.common.jobs import JobState, StopMode
from penstock.controller.checkpoints.messages import Aim
from penstock.controller.execution import Progress
from penstock.controller.records import JobConfig, JobStatus
from penstock.controller.states.failures import RestartPolicy, resolve_failure
from penstock.controller.states.machine import Move, Wait
from penstock.controller.states.view import JobView


class Context(JobView, Protocol):
    @property
    def restart_policy(self) -> RestartPolicy: ...

    @property
    def healthy_after(self) -> timedelta:
        """How long a job must have run for its restarts to be forgotten."""

    @property
    def entered_at(self) -> float: ...

    @property
    def progress(self) -> Progress | None: ...

    @property
    def is_evicted(self) -> bool:
        """Whether a worker of the job is on a node that is being drained."""

    def aim(self, aim: Aim) -> None:
        """Say which checkpoints are wanted."""

    def heal(self) -> None:
        """Forget the job's restarts."""


@dataclass(frozen=True, slots=True)
class Facts:
    config: JobConfig
    status: JobStatus
    progress: Progress | None
    is_evicted: bool
    healthy_at: float
    now: float


@dataclass(frozen=True, slots=True)
class Heal:
    """The job has been well for long enough."""


def decide(facts: Facts, policy: RestartPolicy) -> Move | Heal | Wait:
    config, status, progress = facts.config, facts.status, facts.progress
    if progress is not None and progress.is_done:
        return Move(JobState.FINISHING)
    if config.stop_mode is StopMode.CHECKPOINT:
        return Move(JobState.CHECKPOINT_STOPPING)
    if config.stop_mode is not StopMode.NONE:
        return Move(JobState.STOPPING)
    if progress is not None and progress.failure is not None:
        return resolve_failure(progress.failure, status.restarts, policy)
    if config.restart_nonce != status.restart_nonce:
        return Move(JobState.RESTARTING)
    if config.parallelism != status.parallelism:
        return Move(JobState.RESCALING)
    if facts.is_evicted:
        return Move(JobState.RESTARTING)
    if status.restarts == 0:
        return Wait()
    return Heal() if facts.now >= facts.healthy_at else Wait(facts.healthy_at)


async def run(context: Context) -> Move:
    context.aim(Aim.PERIODIC)
    while True:
        healthy_at = context.entered_at + context.healthy_after.total_seconds()
        facts = Facts(context.config, context.status, context.progress, context.is_evicted, healthy_at, context.now())
        match decide(facts, context.restart_policy):
            case Move() as move:
                return move
            case Heal():
                context.heal()
            case Wait(until):
                await context.wait(until)
