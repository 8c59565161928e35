"""How a job moves between its states.

    Created ──▶ Compiling ──▶ Scheduling ──▶ Running ──▶ Finishing ──▶ Finished
                 ▲  ▲  ▲        ▲  ▲           │
                 │  │  │        │  └ Rescaling ◀┤  parallelism changed
                 │  │  │        └─ Restarting ◀─┤  restart_nonce changed, a node of it is being drained
                 │  │  └────────── Recovering ◀─┤  a task failed and may be tried again, a worker is lost
                 │  └── Stopped ◀── CheckpointStopping, Stopping ◀┤  stop_mode; none starts it again
                 └───── Failed ◀─── Failing ◀──┘  fatal; a new restart_nonce starts it again

What is wanted can change at any time: Compiling, Scheduling, Recovering, Rescaling and Restarting can be stopped, and
Scheduling can be rescaled or restarted while it still waits for slots. A fault that no state foresaw leads from every
state that is under way to Failing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from penstock.common.errors import InternalError
from penstock.common.events import LogEvent
from penstock.common.ids import Generation
from penstock.common.jobs import JobState
from penstock.controller.records import Entry, EventKind, Failure, JobConfig, JobEvent, JobStatus

CREATED, COMPILING, SCHEDULING, RUNNING = JobState.CREATED, JobState.COMPILING, JobState.SCHEDULING, JobState.RUNNING
CHECKPOINT_STOPPING, STOPPING, STOPPED = JobState.CHECKPOINT_STOPPING, JobState.STOPPING, JobState.STOPPED
RESCALING, RESTARTING, RECOVERING = JobState.RESCALING, JobState.RESTARTING, JobState.RECOVERING
FINISHING, FINISHED, FAILING, FAILED = JobState.FINISHING, JobState.FINISHED, JobState.FAILING, JobState.FAILED

TRANSITIONS: Final[Mapping[JobState, frozenset[JobState]]] = MappingProxyType(
    {
        CREATED: frozenset({COMPILING, FAILING}),
        COMPILING: frozenset({SCHEDULING, STOPPING, FAILING}),
        SCHEDULING: frozenset({RUNNING, STOPPING, RESCALING, RESTARTING, RECOVERING, FAILING}),
        RUNNING: frozenset(
            {CHECKPOINT_STOPPING, STOPPING, RESCALING, RECOVERING, RESTARTING, FINISHING, FAILING},
        ),
        CHECKPOINT_STOPPING: frozenset({STOPPED, STOPPING, FAILING}),
        STOPPING: frozenset({STOPPED, FAILING}),
        RESCALING: frozenset({SCHEDULING, STOPPING, FAILING}),
        RECOVERING: frozenset({COMPILING, STOPPING, FAILING}),
        RESTARTING: frozenset({SCHEDULING, STOPPING, FAILING}),
        FINISHING: frozenset({FINISHED, FAILING}),
        FAILING: frozenset({FAILED}),
        STOPPED: frozenset({COMPILING}),
        FINISHED: frozenset(),
        FAILED: frozenset({COMPILING}),
    }
)

DURABLE_FIRST: Final = frozenset({SCHEDULING})
"""Entered only once they are written: a generation that a crash could hand out twice would fence nothing."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Move:
    """A state's decision to go on to another."""

    to: JobState
    failure: Failure | None = None
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A state's decision to stay until something happens, or until a time of the controller's clock."""

    until: float | None = None


def derive_status(config: JobConfig, status: JobStatus, move: Move, now: datetime) -> JobStatus:
    """The status after a move."""
    after = replace(status, state=move.to, failure=move.failure or status.failure)
    if move.tasks is not None:
        after = replace(after, tasks=move.tasks)
    if move.to in {COMPILING, SCHEDULING, RESTARTING}:
        # What starts anew has done what a restart asks for.
        after = replace(after, restart_nonce=config.restart_nonce)
    if status.state.is_terminal:
        after = replace(after, restarts=0, failure=None, finished_at=None)
    match move.to:
        case JobState.SCHEDULING:
            return replace(after, generation=Generation(status.generation + 1), parallelism=config.parallelism)
        case JobState.RUNNING:
            return replace(after, failure=None, started_at=status.started_at or now)
        case JobState.RECOVERING:
            return replace(after, restarts=status.restarts + 1)
        case JobState.RESTARTING:
            return replace(after, restarts=0, failure=None)
        case JobState.STOPPED | JobState.FINISHED:
            return replace(after, failure=None, finished_at=now)
        case JobState.FAILED:
            return replace(after, finished_at=now)
        case _:
            return after


class Journal(Protocol):
    """Writes entries in their order, however long Postgres is away, and announces each once it is written."""

    def append(self, entry: Entry) -> None: ...

    async def write(self, entry: Entry) -> None:
        """Append, and wait until it is written."""


class Observer(Protocol):
    """Counts what the machine does."""

    def moved(self, before: JobStatus, after: JobStatus, duration_seconds: float) -> None: ...


class Machine:
    """The one place where a job's state changes: checks, persists, logs and has it published."""

    def __init__(self, journal: Journal, observer: Observer, wall_clock: Callable[[], datetime]) -> None:
        self._journal = journal
        self._observer = observer
        self._wall_clock = wall_clock

    async def move(self, config: JobConfig, status: JobStatus, move: Move, *, after_seconds: float) -> JobStatus:
        """Make a move; `after_seconds` is how long the job was in its state."""
        if move.to not in TRANSITIONS[status.state]:
            raise InternalError(f"a job cannot go from {status.state} to {move.to}")
        now = self._wall_clock()
        after = derive_status(config, status, move, now)
        entry = Entry(status.job_id, after, _events(status, after, move, now))
        if move.to in DURABLE_FIRST:
            await self._journal.write(entry)
        else:
            self._journal.append(entry)
        self._observer.moved(status, after, after_seconds)
        log.info(
            LogEvent.STATE_TRANSITION,
            from_state=status.state,
            to_state=after.state,
            generation=after.generation,
            duration_ms=round(after_seconds * 1000),
            **({"reason": move.failure.message} if move.failure else {}),
        )
        return after

    def heal(self, status: JobStatus) -> JobStatus:
        """A job has been well for a while: its restarts no longer count."""
        after = replace(status, restarts=0)
        self._journal.append(Entry(status.job_id, after, ()))
        return after

    async def forget_state(self, status: JobStatus, nonce: int) -> JobStatus:
        """A job begins without the state that it had, as a restart asked for."""
        after = replace(status, ignore_state_nonce=nonce)
        await self._journal.write(Entry(status.job_id, after, ()))
        return after

    def warn(self, status: JobStatus, failure: Failure) -> None:
        """Tell the user of something that did not stop the job."""
        event = JobEvent(status.job_id, self._wall_clock(), EventKind.WARNING, status.generation, failure=failure)
        self._journal.append(Entry(status.job_id, None, (event,)))


def _events(before: JobStatus, after: JobStatus, move: Move, now: datetime) -> tuple[JobEvent, ...]:
    moved = JobEvent(after.job_id, now, EventKind.STATE, after.generation, before.state, after.state)
    if move.failure is None:
        return (moved,)
    return (JobEvent(after.job_id, now, EventKind.ERROR, before.generation, failure=move.failure), moved)
