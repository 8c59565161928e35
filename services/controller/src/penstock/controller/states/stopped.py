"""Stopped: at rest until the user wants the job to run again."""

from __future__ import annotations

from penstock.common.jobs import JobState, StopMode
from penstock.controller.records import JobConfig, JobStatus
from penstock.controller.states.machine import Move


def decide(config: JobConfig, _status: JobStatus) -> Move | None:
    return Move(JobState.COMPILING) if config.stop_mode is StopMode.NONE else None
