"""What a user may ask of a job, given where it is: pure decisions, which raise `Conflict` with what to do instead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock.api.http_errors import Conflict
from penstock.common.jobs import JobState, StopMode


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is wanted of a job, and what it is."""

    state: JobState
    stop: StopMode
    restart_pending: bool

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

    @property
    def is_empty(self) -> bool:
        return self.stop is None and self.parallelism is None and self.checkpoint_interval is None


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


def check_delete(facts: JobFacts) -> None:
    """Whether a pipeline can be deleted."""
    if not facts.settled:
        wanted = "will run again" if facts.state.is_terminal else f"is {facts.state}"
        raise Conflict(f"the pipeline's job {wanted}", hint='stop it first: PATCH with {"stop": "immediate"}, and wait')
