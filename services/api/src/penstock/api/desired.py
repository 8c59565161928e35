"""What a user may ask of a job, given where it is: pure decisions, which raise `Conflict` with what to do instead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from penstock.api.http_errors import Conflict
from penstock.api.schemas import RestoredState, Savepoint
from penstock.common.jobs import JobState, StopMode


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is wanted of a job, and what it is."""

    state: JobState
    stop: StopMode
    restart_pending: bool
    preview: bool = False
    has_checkpoint: bool = False
    """Whether there is one that the job could go on from."""

    @property
    def settled(self) -> bool:
        """Whether the job is at its end, and nothing that was asked for will wake it again."""
        wakes = self.state is JobState.STOPPED and self.stop is StopMode.NONE
        return self.state.is_terminal and not wakes and not self.restart_pending


@dataclass(frozen=True, slots=True)
class Change:
    """What a user wants otherwise; None leaves it."""

    stop: StopMode | None = None
    parallelism: int | None = None
    checkpoint_interval: timedelta | None = None
    allow_fallback: bool | None = None

    @property
    def is_empty(self) -> bool:
        return self == Change()


def check_change(facts: JobFacts, change: Change) -> None:
    """Whether a job's desired state can change so."""
    if change.stop is StopMode.NONE and not facts.restart_pending:
        if facts.state is JobState.FINISHED:
            raise Conflict("the job has finished and cannot run again", hint="create the pipeline again")
        if facts.state is JobState.FAILED:
            raise Conflict("the job has failed", hint="restart it with POST /pipelines/{id}/restart")


def check_restart(facts: JobFacts) -> None:
    """Whether a job can be restarted."""
    if facts.state is JobState.FINISHED:
        raise Conflict("the job has finished and cannot run again", hint="create the pipeline again")


def check_rebalance(facts: JobFacts) -> None:
    """Whether a job can be placed anew."""
    if facts.settled:
        raise Conflict(f"the job is {facts.state} and is nowhere", hint="it is placed anew whenever it is started")
    if facts.stop is not StopMode.NONE:
        raise Conflict("the job is being stopped", hint="it is placed anew whenever it is started")


def check_delete(facts: JobFacts) -> None:
    """Whether a pipeline can be deleted."""
    if not facts.settled:
        wanted = "will run again" if facts.state.is_terminal else f"is {facts.state}"
        raise Conflict(f"the pipeline's job {wanted}", hint='stop it first: PATCH with {"stop": "immediate"}, and wait')


def check_savepoint(facts: JobFacts) -> None:
    """Whether a job can make a savepoint: now, once it runs, or of what it was stopped with."""
    if facts.preview:
        raise Conflict("a preview has no state to keep", hint="create the query as a pipeline")
    if facts.settled and facts.state is JobState.FINISHED:
        raise Conflict("the job has finished, and nothing can go on from there", hint="make savepoints while it runs")
    if facts.settled and not facts.has_checkpoint:
        raise Conflict(f"the job is {facts.state} and has no checkpoint", hint="have it run again first")


def check_ready(savepoint: Savepoint) -> None:
    """Whether a pipeline can begin with a savepoint."""
    match savepoint.state:
        case "creating":
            raise Conflict(f"the savepoint {savepoint.name!r} is not made yet", hint="wait until it is ready")
        case "failed":
            message = f"the savepoint {savepoint.name!r} could not be made: {savepoint.error}"
            raise Conflict(message, hint="delete it, and make another")
        case "ready":
            pass
        case _:
            assert_never(savepoint.state)


def check_restored(state: RestoredState, savepoint: str) -> None:
    """Whether a query can begin with what it would make of a savepoint."""
    if state.incompatible:
        which = ", ".join(f"{each.operator} ({each.description})" for each in state.incompatible)
        raise Conflict(
            f"the query cannot go on from savepoint {savepoint!r}: the state of {which} does not fit it",
            hint="POST /pipelines/validate with from_savepoint tells what fits; without a savepoint it begins anew",
        )
