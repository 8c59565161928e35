"""Scheduling: workers are asked for, register, get their tasks and start them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from penstock.common.jobs import JobState, StopMode
from penstock.common.quantities import format_duration
from penstock.controller.execution import Progress
from penstock.controller.records import Failure, JobConfig, JobStatus
from penstock.controller.states.failures import RestartPolicy, resolve_failure
from penstock.controller.states.machine import Move, Wait
from penstock.controller.states.view import JobView, attempting


class Context(JobView, Protocol):
    @property
    def restart_policy(self) -> RestartPolicy: ...

    @property
    def start_timeout(self) -> timedelta:
        """How long workers may take from the moment that slots were found."""

    @property
    def granted_at(self) -> float | None:
        """When slots were found; they are waited for without limit."""

    @property
    def progress(self) -> Progress | None: ...

    async def launch(self) -> None:
        """Get workers and give them their tasks; does nothing for a generation that is on its workers already."""


@dataclass(frozen=True, slots=True)
class Facts:
    config: JobConfig
    status: JobStatus
    launched: bool
    failure: Failure | None
    progress: Progress | None
    deadline: float | None
    start_timeout: timedelta
    now: float


def decide(facts: Facts, policy: RestartPolicy) -> Move | Wait:
    config, status = facts.config, facts.status
    if config.stop_mode is not StopMode.NONE:
        return Move(JobState.STOPPING)
    if facts.failure is not None:
        return resolve_failure(facts.failure, status.restarts, policy)
    if config.restart_nonce != status.restart_nonce:
        return Move(JobState.RESTARTING)
    if config.parallelism != status.parallelism:
        return Move(JobState.RESCALING)
    if facts.launched and facts.progress is not None and facts.progress.all_started:
        return Move(JobState.RUNNING, tasks=facts.progress.tasks)
    if facts.deadline is not None and facts.now >= facts.deadline:
        return resolve_failure(_too_slow(facts), status.restarts, policy)
    return Wait(facts.deadline)


def _too_slow(facts: Facts) -> Failure:
    within = format_duration(facts.start_timeout)
    if facts.progress is None or not facts.launched:
        return Failure.lost(f"the job's workers were not ready within {within}")
    waiting = facts.progress.tasks - facts.progress.started
    return Failure.lost(f"{waiting} of {facts.progress.tasks} tasks did not start within {within}")


async def run(context: Context) -> Move:
    async with attempting(context, context.launch()) as launch:
        while True:
            progress, granted_at = context.progress, context.granted_at
            facts = Facts(
                config=context.config,
                status=context.status,
                launched=launch.is_done,
                failure=(progress.failure if progress else None) or launch.failure,
                progress=progress,
                deadline=None if granted_at is None else granted_at + context.start_timeout.total_seconds(),
                start_timeout=context.start_timeout,
                now=context.now(),
            )
            match decide(facts, context.restart_policy):
                case Move() as move:
                    return move
                case Wait(until):
                    await context.wait(until)
