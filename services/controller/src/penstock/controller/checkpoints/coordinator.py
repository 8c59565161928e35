"""Decides the checkpoints of one generation of a job, by what was reported alone; does nothing itself.

    Begin ──Begun──▶ collecting ──all tasks completed──▶ WriteMetadata ──Written──▶ Record ──Recorded──▶ SendCommits ─┐
                         │                                  │                          │ nothing is staged            │
                         └── a task refused, time is up ────┴──▶ Abandon               └──────────▶ MarkReady ◀───────┘
                                                                                            all tasks committed

One epoch is under way at a time. Once its metadata is written an epoch is never abandoned: whoever restores the job may
have found it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Final

from penstock.common.errors import ErrorDomain, RetryHint
from penstock.common.ids import Epoch, SavepointId
from penstock.common.quantities import format_duration
from penstock.controller.checkpoints.messages import (
    Abandon,
    Action,
    Actions,
    Aim,
    Aimed,
    Begin,
    Begun,
    Commits,
    Fail,
    IntervalChanged,
    MarkReady,
    Part,
    Record,
    Recorded,
    Report,
    SavepointWanted,
    SendCommits,
    TaskCommitted,
    TaskCompleted,
    TaskEnded,
    TaskFinished,
    TaskRefused,
    TimePassed,
    WriteFailed,
    WriteMetadata,
    Written,
    derive_commits,
)
from penstock.controller.records import Failure, TaskId

_RESEND_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 5.0
_NO_EPOCH: Final = Epoch(0)


@dataclass(frozen=True, slots=True)
class Policy:
    interval_seconds: float
    timeout_seconds: float
    max_failures: int
    retained: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An epoch of this generation whose metadata an earlier controller wrote."""

    epoch: Epoch
    then_stop: bool
    commits: Commits


@dataclass(frozen=True, slots=True)
class Past:
    """The checkpoints of a job before its coordinator: those that are kept, the oldest first."""

    last_epoch: Epoch = _NO_EPOCH
    completed: tuple[Epoch, ...] = ()
    uncommitted: Epoch | None = None
    """Restored by this generation, whose tasks commit it as they start."""
    unfinished: Unfinished | None = None
    final: Epoch | None = None
    """The last of this generation, after which nothing is to come."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What states see."""

    under_way: bool
    final: bool
    """The last checkpoint is complete and committed."""


class _Phase(Enum):
    BEGINNING = "beginning"
    COLLECTING = "collecting"
    WRITING = "writing"
    RECORDING = "recording"
    COMMITTING = "committing"


@dataclass(slots=True)
class _UnderWay:
    epoch: Epoch
    then_stop: bool
    ended: bool = False
    phase: _Phase = _Phase.BEGINNING
    due_at: float | None = None
    """By when what its phase waits for must have happened."""
    resend_at: float | None = None
    parts: dict[TaskId, Part] = field(default_factory=dict)
    commits: Commits = field(default_factory=dict)
    committed: set[TaskId] = field(default_factory=set)

    @property
    def missing_commits(self) -> Commits:
        return {task: commits for task, commits in self.commits.items() if task not in self.committed}


class Coordinator:
    """Plain state, changed by `handle` alone. Reports may come twice, late, in any order, or never."""

    def __init__(
        self, tasks: Iterable[TaskId], sources: Iterable[TaskId], policy: Policy, past: Past, *, now: float
    ) -> None:
        self._tasks = frozenset(tasks)
        self._sources = frozenset(sources)
        self._policy = policy
        self._last_epoch = past.last_epoch
        self._completed = list(past.completed)
        self._uncommitted = past.uncommitted
        self._final = past.final
        self._aim = Aim.NONE
        self._begun_at = now
        self._retry_at = now
        self._failures = 0
        self._failed = False
        self._ended: set[TaskId] = set()
        self._finished: set[TaskId] = set()
        self._savepoints: deque[SavepointId] = deque()
        self._known_savepoints: set[SavepointId] = set()
        self._current: _UnderWay | None = None
        self._unfinished = past.unfinished

    @property
    def outlook(self) -> Outlook:
        return Outlook(self._current is not None or self._unfinished is not None, self._final is not None)

    @property
    def current(self) -> Epoch | None:
        """The epoch under way."""
        return None if self._current is None else self._current.epoch

    @property
    def is_discardable(self) -> bool:
        """Whether nobody can have found the epoch under way complete."""
        return self._current is not None and self._current.phase in {_Phase.BEGINNING, _Phase.COLLECTING}

    @property
    def next_at(self) -> float | None:
        """When time alone changes something."""
        current = self._current
        if current is not None:
            times = [time for time in (current.due_at, current.resend_at) if time is not None]
            return min(times, default=None)
        if self._is_over:
            return None
        if self._wants_last:
            return self._retry_at
        return self._due_at if self._aim is Aim.PERIODIC else None

    def handle(self, report: Report, now: float) -> tuple[Action, ...]:
        """What is to be done now, in its order."""
        return (*self._take(report, now), *self._pass_time(now))

    def _take(self, report: Report, now: float) -> Actions:
        match report:
            case Aimed(aim):
                yield from self._take_aim(aim)
            case IntervalChanged(seconds):
                self._policy = replace(self._policy, interval_seconds=seconds)
            case SavepointWanted(savepoint):
                if savepoint not in self._known_savepoints:
                    self._known_savepoints.add(savepoint)
                    self._savepoints.append(savepoint)
            case TaskEnded(task):
                self._ended |= {task} & self._sources
            case TaskFinished(task):
                self._finished |= {task} & self._tasks
            case TimePassed():
                pass
            case _:
                current = self._current
                if current is not None and current.epoch == report.epoch:
                    yield from self._advance(current, report, now)

    def _take_aim(self, aim: Aim) -> Actions:
        self._aim = aim
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            current = _UnderWay(unfinished.epoch, unfinished.then_stop, phase=_Phase.RECORDING)
            current.commits = unfinished.commits
            self._current = current
            yield Record(current.epoch, committing=bool(current.commits))
        if self._uncommitted is not None and aim is not Aim.NONE:
            # All tasks have started, and that was the first that they did.
            epoch, self._uncommitted = self._uncommitted, None
            yield self._mark_ready(epoch)

    def _advance(
        self,
        current: _UnderWay,
        report: Begun | TaskCompleted | TaskRefused | Written | WriteFailed | Recorded | TaskCommitted,
        now: float,
    ) -> Actions:
        """A report about the epoch under way; one that does not fit its phase is late, or comes again."""
        match report, current.phase:
            case Begun(), _Phase.BEGINNING:
                current.phase = _Phase.COLLECTING
                current.due_at = now + self._policy.timeout_seconds
            case TaskCompleted(_, task, part), _Phase.COLLECTING if task in self._tasks:
                current.parts.setdefault(task, part)
                if current.parts.keys() == self._tasks:
                    current.phase = _Phase.WRITING
                    yield WriteMetadata(current.epoch, dict(current.parts), current.ended)
            case TaskRefused(_, task, failure), _Phase.COLLECTING if task in self._tasks - current.parts.keys():
                yield from self._abandon(current, failure, now)
            case WriteFailed(_, failure), _Phase.WRITING:
                yield from self._abandon(current, failure, now)
            case Written(), _Phase.WRITING:
                current.phase = _Phase.RECORDING
                current.due_at = None
                current.commits = derive_commits(current.parts)
                yield Record(current.epoch, committing=bool(current.commits))
            case Recorded(), _Phase.RECORDING:
                yield from self._complete(current, now)
            case TaskCommitted(_, task), _Phase.COMMITTING:
                current.committed.add(task)
                if not current.missing_commits:
                    yield self._finish(current)

    def _complete(self, current: _UnderWay, now: float) -> Actions:
        self._failures = 0
        self._completed = [*(epoch for epoch in self._completed if epoch != current.epoch), current.epoch]
        if not current.commits:
            yield self._finish(current)
            return
        current.phase = _Phase.COMMITTING
        current.due_at = now + self._policy.timeout_seconds
        current.resend_at = now + _RESEND_SECONDS
        yield SendCommits(current.epoch, current.commits)

    def _finish(self, current: _UnderWay) -> MarkReady:
        self._current = None
        if current.then_stop:
            self._final = current.epoch
        return self._mark_ready(current.epoch)

    def _mark_ready(self, epoch: Epoch) -> MarkReady:
        self._completed = self._completed[-self._policy.retained :]
        return MarkReady(epoch, self._completed[0])

    def _abandon(self, current: _UnderWay, failure: Failure, now: float) -> Actions:
        self._current = None
        self._retry_at = now + min(self._policy.interval_seconds, _RETRY_SECONDS)
        self._failures += 1
        yield Abandon(current.epoch, failure)
        if self._failures >= self._policy.max_failures:
            in_a_row = f"{self._failures} checkpoints in a row failed" if self._failures > 1 else "a checkpoint failed"
            message = f"{in_a_row}: {failure.message}"
            yield self._fail(Failure(message, failure.hint, failure.domain, RetryHint.NEVER, failure.task))

    def _fail(self, failure: Failure) -> Fail:
        self._failed = True
        return Fail(failure)

    # Time

    @property
    def _due_at(self) -> float:
        return self._begun_at + self._policy.interval_seconds

    @property
    def _is_over(self) -> bool:
        return self._failed or self._final is not None or self._aim is Aim.NONE

    @property
    def _all_ended(self) -> bool:
        return self._ended == self._sources

    @property
    def _wants_last(self) -> bool:
        return self._aim is Aim.STOP or self._all_ended

    def _pass_time(self, now: float) -> Actions:
        current = self._current
        if current is not None:
            yield from self._hurry(current, now)
        if self._current is None and not self._is_over:
            if self._finished:
                missed = "tasks ended before the last checkpoint was complete"
                yield self._fail(Failure.lost(missed))
            elif self._wants_last:
                if now >= self._retry_at:
                    yield self._begin(now, then_stop=True)
            elif self._aim is Aim.PERIODIC and (now >= self._due_at or self._savepoints):
                yield self._begin(now, then_stop=False)

    def _hurry(self, current: _UnderWay, now: float) -> Actions:
        if current.due_at is not None and now >= current.due_at:
            if current.phase is not _Phase.COMMITTING:
                yield from self._abandon(current, self._too_slow(current), now)
                return
            current.due_at = None
            tasks = ", ".join(map(str, sorted(current.missing_commits)))
            yield self._fail(Failure.lost(f"checkpoint {current.epoch} was not committed in time by {tasks}"))
        if current.resend_at is not None and now >= current.resend_at:
            current.resend_at = now + _RESEND_SECONDS
            yield SendCommits(current.epoch, current.missing_commits)

    def _too_slow(self, current: _UnderWay) -> Failure:
        within = f"within {format_duration(timedelta(seconds=self._policy.timeout_seconds))}"
        missing = sorted(self._tasks - current.parts.keys())
        message = f"the metadata of checkpoint {current.epoch} was not written {within}"
        if missing:
            message = f"{len(missing)} of {len(self._tasks)} tasks did not complete checkpoint {current.epoch} {within}"
        return Failure(message, None, ErrorDomain.EXTERNAL, RetryHint.BACKOFF, missing[0] if missing else None)

    def _begin(self, now: float, *, then_stop: bool) -> Begin:
        epoch = self._last_epoch = Epoch(self._last_epoch + 1)
        # Sources that were asked to end have more to give when the job is started again.
        self._current = _UnderWay(epoch, then_stop, ended=self._all_ended and self._aim is Aim.PERIODIC)
        self._begun_at = now
        savepoint = self._savepoints.popleft() if self._savepoints else None
        return Begin(epoch, self._completed[0] if self._completed else _NO_EPOCH, then_stop, savepoint)
