"""The steps of a checkpoint in a worker. At each a process may end, and what was promised must still hold."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """Named after what has just happened."""

    BARRIER_INJECTED = "worker.barrier_injected"
    FROZEN = "worker.frozen"
    BARRIER_PASSED_ON = "worker.barrier_passed_on"
    FILE_WRITTEN = "worker.file_written"
    SINK_STAGED = "worker.sink_staged"
    BEFORE_COMPLETED_REPORT = "worker.before_completed_report"
    COMPLETED_REPORTED = "worker.completed_reported"
    BEFORE_COMMIT = "worker.before_commit"
    COMMITTED = "worker.committed"
    COMMIT_REPORTED = "worker.commit_reported"
    BEFORE_RECOVER = "worker.before_recover"
    RECOVERED = "worker.recovered"
    RESTORED = "worker.restored"
    COMPACTED = "worker.compacted"
