"""CheckpointStopping: the job ends so that it can go on later where it was. Without checkpoints, a graceful stop."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.jobs import JobState, StopMode
from penstock.controller.records import Failure, JobConfig
from penstock.controller.states.draining import Context, Drained, Interrupted, drain
from penstock.controller.states.machine import Move


@dataclass(frozen=True, slots=True)
class Facts:
    interrupted: bool
    failure: Failure | None


def decide(facts: Facts) -> Move:
    if facts.interrupted:
        return Move(JobState.STOPPING)
    if facts.failure is not None and facts.failure.is_fatal:
        return Move(JobState.FAILING, facts.failure)
    return Move(JobState.STOPPED, facts.failure)


def _derive_mode(config: JobConfig) -> StopMode | None:
    return StopMode.CHECKPOINT if config.stop_mode in {StopMode.CHECKPOINT, StopMode.NONE} else None


async def run(context: Context) -> Move:
    match await drain(context, _derive_mode):
        case Interrupted():
            return decide(Facts(interrupted=True, failure=None))
        case Drained(failure):
            return decide(Facts(interrupted=False, failure=failure))
