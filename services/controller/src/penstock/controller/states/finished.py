"""Finished: every source ended and every row arrived; nothing leads on."""

from __future__ import annotations

from penstock.controller.records import JobConfig, JobStatus
from penstock.controller.states.machine import Move


def decide(_config: JobConfig, _status: JobStatus) -> Move | None:
    return None
