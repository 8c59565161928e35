"""What every service knows of jobs: their states and what a user can ask of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from penstock.common.proto import jobs_pb2 as proto


class JobState(StrEnum):
    """Where a job is in its life; `controller/states/machine.py` says how it moves."""

    CREATED = "created"
    COMPILING = "compiling"
    SCHEDULING = "scheduling"
    RUNNING = "running"
    CHECKPOINT_STOPPING = "checkpoint_stopping"
    STOPPING = "stopping"
    RESCALING = "rescaling"
    RECOVERING = "recovering"
    RESTARTING = "restarting"
    FINISHING = "finishing"
    FAILING = "failing"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the job stays so until the user asks for more."""
        return self in _TERMINAL

    def to_proto(self) -> proto.JobState.ValueType:
        return proto.JobState.Value(f"JOB_STATE_{self.name}")


_TERMINAL: Final = frozenset({JobState.STOPPED, JobState.FINISHED, JobState.FAILED})


class StopMode(StrEnum):
    """How a user wants a job to be stopped; `none` wants it to run."""

    NONE = "none"
    CHECKPOINT = "checkpoint"
    GRACEFUL = "graceful"
    IMMEDIATE = "immediate"
    FORCE = "force"


class RestartMode(StrEnum):
    """How a user wants a job to be restarted: after a checkpoint, or at once."""

    SAFE = "safe"
    FORCE = "force"
