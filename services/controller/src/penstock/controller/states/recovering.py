"""Recovering: what is left of the failed generation is killed, and the job waits a little before it is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.common.jobs import JobState, StopMode
from penstock.controller.records import JobConfig, JobStatus
from penstock.controller.states.failures import RestartPolicy
from penstock.controller.states.machine import Move, Wait
from penstock.controller.states.view import JobView


class Context(JobView, Protocol):
    @property
    def restart_policy(self) -> RestartPolicy: ...

    @property
    def entered_at(self) -> float: ...

    async def close_execution(self, *, force: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Facts:
    config: JobConfig
    status: JobStatus
    due_at: float
    now: float


def decide(facts: Facts) -> Move | Wait:
    if facts.config.stop_mode is not StopMode.NONE:
        return Move(JobState.STOPPING)
    # Whoever asks for a restart does not want to wait for it.
    if facts.now >= facts.due_at or facts.config.restart_nonce != facts.status.restart_nonce:
        return Move(JobState.COMPILING)
    return Wait(facts.due_at)


async def run(context: Context) -> Move:
    await context.close_execution(force=True)
    due_at = context.entered_at + context.restart_policy.delay_seconds(context.status.restarts)
    while True:
        match decide(Facts(context.config, context.status, due_at, context.now())):
            case Move() as move:
                return move
            case Wait(until):
                await context.wait(until)
