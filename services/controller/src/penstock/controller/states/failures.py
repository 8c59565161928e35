"""What a failure leads to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from penstock.common.errors import RetryHint
from penstock.common.jobs import JobState
from penstock.controller.records import Failure
from penstock.controller.states.machine import Move


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often, and how soon, a job that failed is tried again."""

    max_restarts: int
    backoff_min: timedelta
    backoff_max: timedelta

    def delay_seconds(self, restarts: int) -> float:
        """The wait before the nth restart in a row, counted from 1: none before the first, since most that fails after
        it was well does so once."""
        if restarts <= 1:
            return 0.0
        doublings = min(restarts - 2, 63)
        return min(self.backoff_min.total_seconds() * (1 << doublings), self.backoff_max.total_seconds())


def resolve_failure(failure: Failure, restarts: int, policy: RestartPolicy) -> Move:
    """Recover if another attempt may help and there is one left, else fail."""
    if failure.is_fatal:
        return Move(JobState.FAILING, failure)
    if restarts < policy.max_restarts:
        return Move(JobState.RECOVERING, failure)
    message = f"gave up after {restarts} restarts: {failure.message}"
    return Move(JobState.FAILING, replace(failure, message=message, retry=RetryHint.NEVER))
