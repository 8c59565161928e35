"""What the coordinator of a job's checkpoints is told, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from penstock.common.ids import Epoch, SavepointId
from penstock.common.program import OperatorKey
from penstock.common.proto.checkpoint_pb2 import OperatorState
from penstock.controller.records import Failure, TaskId


class Aim(Enum):
    """Which checkpoints the job's state wants."""

    NONE = "none"
    PERIODIC = "periodic"  # by the clock, for savepoints, and a last one when all sources have ended
    DRAIN = "drain"  # a last one when all sources have ended, as they were asked to
    STOP = "stop"  # a last one now


@dataclass(frozen=True, slots=True)
class StagedCommit:
    """By what the rows are committed that a sink has staged."""

    operator: OperatorKey
    data: bytes


Commits: TypeAlias = Mapping[TaskId, tuple[StagedCommit, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """What one task has written for an epoch."""

    operators: tuple[OperatorState, ...] = ()
    watermark_us: int = 0
    at_us: int = 0

    @property
    def commits(self) -> tuple[StagedCommit, ...]:
        return tuple(
            StagedCommit(OperatorKey(each.operator_id), each.commit)
            for each in self.operators
            if each.HasField("commit")
        )


def derive_commits(parts: Mapping[TaskId, Part]) -> Commits:
    """The tasks that have staged rows."""
    return {task: part.commits for task, part in parts.items() if part.commits}


# What it is told: by the job and its user


@dataclass(frozen=True, slots=True)
class Aimed:
    aim: Aim


@dataclass(frozen=True, slots=True)
class IntervalChanged:
    seconds: float


@dataclass(frozen=True, slots=True)
class SavepointWanted:
    savepoint: SavepointId


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing but the clock."""


# By tasks, any number of times, late, in any order, or never


@dataclass(frozen=True, slots=True)
class TaskCompleted:
    epoch: Epoch
    task: TaskId
    part: Part


@dataclass(frozen=True, slots=True)
class TaskRefused:
    """A task could not write its part, and goes on."""

    epoch: Epoch
    task: TaskId
    failure: Failure


@dataclass(frozen=True, slots=True)
class TaskCommitted:
    epoch: Epoch
    task: TaskId


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A source has no more rows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class TaskFinished:
    task: TaskId


# By whoever does what it asks for


@dataclass(frozen=True, slots=True)
class Begun:
    """The epoch's row is in Postgres."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Written:
    """The epoch's metadata is in the storage: from now on it can be restored."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class WriteFailed:
    epoch: Epoch
    failure: Failure


@dataclass(frozen=True, slots=True)
class Recorded:
    """That the epoch can be restored is in Postgres."""

    epoch: Epoch


Report: TypeAlias = (
    Aimed
    | IntervalChanged
    | SavepointWanted
    | TimePassed
    | TaskCompleted
    | TaskRefused
    | TaskCommitted
    | TaskEnded
    | TaskFinished
    | Begun
    | Written
    | WriteFailed
    | Recorded
)


# What it asks for


@dataclass(frozen=True, slots=True)
class Begin:
    """Write the epoch's row, then have barriers put into the stream."""

    epoch: Epoch
    min_epoch: Epoch
    then_stop: bool
    savepoint: SavepointId | None


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """All tasks have written their parts."""

    epoch: Epoch
    parts: Mapping[TaskId, Part]
    ended: bool


@dataclass(frozen=True, slots=True)
class Record:
    """Write to Postgres that the epoch can be restored, and whether it is still to be committed."""

    epoch: Epoch
    committing: bool


@dataclass(frozen=True, slots=True)
class SendCommits:
    epoch: Epoch
    commits: Commits


@dataclass(frozen=True, slots=True)
class MarkReady:
    """All is committed. `min_epoch` is the oldest that is kept: what only older ones need can go."""

    epoch: Epoch
    min_epoch: Epoch


@dataclass(frozen=True, slots=True)
class Abandon:
    epoch: Epoch
    failure: Failure


@dataclass(frozen=True, slots=True)
class Fail:
    """The job cannot go on like this."""

    failure: Failure


Action: TypeAlias = Begin | WriteMetadata | Record | SendCommits | MarkReady | Abandon | Fail
Actions: TypeAlias = Iterator[Action]
