"""Failed: at rest until the user asks for a restart."""

from __future__ import annotations

from penstock.common.jobs import JobState
from penstock.controller.records import JobConfig, JobStatus
from penstock.controller.states.machine import Move


def decide(config: JobConfig, status: JobStatus) -> Move | None:
    return Move(JobState.COMPILING) if config.restart_nonce != status.restart_nonce else None
