"""Compiling: the program that the api stored is loaded and checked, ready to be scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.common.jobs import JobState, StopMode
from penstock.common.program import Program
from penstock.controller.records import Failure
from penstock.controller.states.machine import Move, Wait
from penstock.controller.states.view import JobView, attempting


class Context(JobView, Protocol):
    async def load_program(self) -> Program:
        """The job's program; waits while Postgres is away."""


@dataclass(frozen=True, slots=True)
class Facts:
    stop_mode: StopMode
    loaded: bool
    failure: Failure | None


def decide(facts: Facts) -> Move | Wait:
    if facts.stop_mode is not StopMode.NONE:
        return Move(JobState.STOPPING)
    if facts.failure is not None:
        return Move(JobState.FAILING, facts.failure)
    return Move(JobState.SCHEDULING) if facts.loaded else Wait()


async def run(context: Context) -> Move:
    async with attempting(context, context.load_program()) as loading:
        while True:
            match decide(Facts(context.config.stop_mode, loading.is_done, loading.failure)):
                case Move() as move:
                    return move
                case Wait(until):
                    await context.wait(until)
