"""Checkpoints and savepoints as Postgres has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from penstock.common.checkpoint.paths import SnapshotPath, checkpoint_path
from penstock.common.ids import Epoch, Generation, JobId, PipelineId, SavepointId


class CheckpointState(StrEnum):
    """What has become of an epoch."""

    INPROGRESS = "inprogress"
    COMMITTING = "committing"
    READY = "ready"
    ABANDONED = "abandoned"
    DELETED = "deleted"

    @property
    def is_completed(self) -> bool:
        """Whether it can be restored."""
        return self in {CheckpointState.COMMITTING, CheckpointState.READY}


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """An epoch of a job."""

    job_id: JobId
    epoch: Epoch
    generation: Generation
    state: CheckpointState
    then_stop: bool
    started_at: datetime
    savepoint_id: SavepointId | None = None
    finished_at: datetime | None = None
    bytes: int = 0
    error: str | None = None
    details: Mapping[str, Any] | None = None

    @property
    def path(self) -> SnapshotPath:
        return checkpoint_path(self.epoch)


class SavepointState(StrEnum):
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class SavepointRecord:
    """A savepoint that was made, or could not be."""

    id: SavepointId
    job_id: JobId
    pipeline_id: PipelineId | None
    name: str
    state: SavepointState
    epoch: Epoch | None = None
    path: SnapshotPath | None = None
    bytes: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A savepoint that is wanted and not there, or there and no longer wanted."""

    id: SavepointId
    job_id: JobId
    name: str
    deleted: bool
    pipeline_id: PipelineId | None
    """None of a job that is no more."""
    preview: bool
    made: SavepointRecord | None
