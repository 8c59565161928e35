"""The checkpoints of one generation: tells the coordinator what is reported, and does what it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias, assert_never

import structlog

from penstock.common.checkpoint.metadata import Snapshot
from penstock.common.crash_points import crash_point
from penstock.common.errors import ErrorDomain, PenstockError, RetryHint
from penstock.common.events import LogEvent
from penstock.common.ids import Epoch, JobId, WorkerId
from penstock.common.proto.controller_pb2 import CheckpointStep
from penstock.common.storage import Storage
from penstock.controller.checkpoints.coordinator import Coordinator, Outlook, Past, Policy
from penstock.controller.checkpoints.history import EpochHistory
from penstock.controller.checkpoints.messages import (
    Abandon,
    Action,
    Begin,
    Begun,
    Commits,
    Fail,
    MarkReady,
    Record,
    Recorded,
    Report,
    SendCommits,
    TaskCommitted,
    TaskCompleted,
    TimePassed,
    WriteFailed,
    WriteMetadata,
    Written,
)
from penstock.controller.checkpoints.records import CheckpointRecord, CheckpointState
from penstock.controller.checkpoints.snapshots import Completed, write_checkpoint
from penstock.controller.checkpoints.steps import Step
from penstock.controller.execution import Execution
from penstock.controller.records import Entry, Failure, TaskId, TaskOwner
from penstock.controller.registry import Worker

_RowAction: TypeAlias = Begin | Record | MarkReady | Abandon

_RETRY_SECONDS: Final = 0.5
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH_START: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
# Until the past is known, nothing is sure to be over.
_UNKNOWN: Final = Outlook(under_way=True, final=False)

log = structlog.get_logger(__name__)


class Journal(Protocol):
    def append(self, entry: Entry) -> None: ...

    async def write(self, entry: Entry) -> None: ...


class CheckpointWorkers(Protocol):
    async def checkpoint(self, worker: Worker, owner: TaskOwner, begin: Begin) -> None: ...

    async def commit(self, worker: Worker, owner: TaskOwner, epoch: Epoch, commits: Commits) -> None: ...


class Keeper(Protocol):
    """Looks after what has been completed, in its own time."""

    def remember(self, job: JobId, snapshot: Snapshot) -> None: ...

    def tidy(self, job: JobId) -> None: ...


class Observer(Protocol):
    def checkpoint_ended(self, record: CheckpointRecord) -> None: ...


@dataclass(frozen=True, slots=True)
class CyclePorts:
    """What the cycles of all jobs share; `storage` is that of all jobs."""

    storage: Storage
    journal: Journal
    workers: CheckpointWorkers
    keeper: Keeper
    observer: Observer
    clock: Callable[[], float]
    wall_clock: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class JobPorts:
    """What a cycle needs of its job."""

    known_workers: Callable[[], Mapping[WorkerId, Worker]]
    warn: Callable[[Failure], None]
    wake: Callable[[], None]


class CheckpointCycle:
    """Takes reports from the start, and acts on them once it is open."""

    def __init__(self, execution: Execution, ports: CyclePorts, job: JobPorts) -> None:
        self._execution = execution
        self._owner = execution.owner
        self._ports = ports
        self._job = job
        self._coordinator: Coordinator | None = None
        self._backlog: list[Report] = []
        self._records: dict[Epoch, CheckpointRecord] = {}
        self._histories: dict[Epoch, EpochHistory] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: asyncio.Task[None] | None = None
        self._sending: set[tuple[Epoch, WorkerId]] = set()
        self._rows: asyncio.Queue[_RowAction] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def outlook(self) -> Outlook:
        return _UNKNOWN if self._coordinator is None else self._coordinator.outlook

    def open(self, past: Past, policy: Policy, records: tuple[CheckpointRecord, ...] = ()) -> None:
        """Begin to act. `records` are those of the past that may still change."""
        program = self._execution.program
        sources = {node.key for node in program.nodes if node.is_source}
        tasks = self._execution.tasks
        self._records = {record.epoch: record for record in records}
        self._coordinator = Coordinator(
            tasks, (task for task in tasks if task.node in sources), policy, past, now=self._ports.clock()
        )
        backlog, self._backlog = self._backlog, []
        for report in backlog:
            self.report(report)
        self._spawn(self._watch_time(), "time")
        self._spawn(self._write_rows(), "rows")
        self._job.wake()

    async def close(self, reason: str) -> None:
        """Do nothing more. What cannot have become complete is abandoned; the rest is settled at the next start."""
        tasks = self.cancel()
        if tasks:
            await asyncio.wait(tasks)
        while not self._rows.empty():
            self._settle(self._rows.get_nowait())
        if self._coordinator is not None and self._coordinator.is_discardable:
            record = self._records.get(self._coordinator.current or Epoch(0))
            if record is not None:
                # A savepoint that it was for is still wanted.
                self._end(replace(record, savepoint_id=None), CheckpointState.ABANDONED, reason)

    def cancel(self) -> tuple[asyncio.Task[None], ...]:
        """Do nothing more, and leave everything as it is."""
        self._closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def _settle(self, action: _RowAction) -> None:
        """What was decided and can no longer be waited for."""
        record = self._records.get(action.epoch)
        if record is None:
            return
        if isinstance(action, MarkReady) and record.state is not CheckpointState.READY:
            self._end(record, CheckpointState.READY)
        elif isinstance(action, Abandon):
            self._end(record, CheckpointState.ABANDONED, action.failure.message)

    # What is reported

    def report(self, report: Report) -> None:
        """Tell the coordinator, and do what it asks for."""
        if self._closed:
            return
        if self._coordinator is None:
            self._backlog.append(report)
            return
        self._note(report)
        for action in self._coordinator.handle(report, self._ports.clock()):
            self._do(action)
        self._changed.set()
        self._job.wake()

    def note_step(self, epoch: Epoch, task: TaskId, step: CheckpointStep.ValueType, at_us: int) -> None:
        """For the history alone."""
        history = self._histories.get(epoch)
        if history is not None:
            history.note_step(task, step, at_us)

    def _note(self, report: Report) -> None:
        match report:
            case TaskCompleted(epoch, task, part) if epoch in self._histories:
                self._histories[epoch].note_completed(task, part)
            case TaskCommitted(epoch, task) if epoch in self._histories:
                self._histories[epoch].note_committed(task, self._now_us())
            case _:
                pass

    async def _watch_time(self) -> None:
        while True:
            until = self._coordinator.next_at if self._coordinator else None
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else max(until - self._ports.clock(), 0)):
                    await self._changed.wait()
                    continue
            self.report(TimePassed())

    # What is asked for

    def _do(self, action: Action) -> None:
        match action:
            case Begin() | Record() | MarkReady():
                self._rows.put_nowait(action)
            case WriteMetadata():
                self._writing = self._spawn(self._write(action), f"metadata-{action.epoch}")
            case SendCommits():
                self._send_commits(action)
            case Abandon():
                if self._writing is not None:
                    self._writing.cancel()
                self._rows.put_nowait(action)
            case Fail(failure):
                self._execution.record_failure(failure)
            case _:
                assert_never(action)

    async def _write_rows(self) -> None:
        """Rows are written in the order in which they were decided."""
        while True:
            action = await self._rows.get()
            match action:
                case Begin():
                    await self._begin(action)
                case Record():
                    await self._record(action)
                case MarkReady():
                    await self._mark_ready(action)
                case Abandon():
                    await self._abandon(action)
                case _:
                    assert_never(action)

    async def _begin(self, begin: Begin) -> None:
        record = CheckpointRecord(
            self._owner.job_id,
            begin.epoch,
            self._owner.generation,
            CheckpointState.INPROGRESS,
            begin.then_stop,
            self._ports.wall_clock(),
            begin.savepoint,
        )
        self._records[begin.epoch] = record
        self._histories = {begin.epoch: EpochHistory()}
        await crash_point(Step.BEFORE_BEGIN)
        await self._ports.journal.write(Entry(record.job_id, None, (), record))
        await crash_point(Step.AFTER_BEGIN)
        log.debug(LogEvent.CHECKPOINT_BEGUN, epoch=begin.epoch, then_stop=begin.then_stop)
        self.report(Begun(begin.epoch))
        sources = {node.key for node in self._execution.program.nodes if node.is_source}
        for worker in self._execution.live_workers:
            if any(task.node in sources for task in self._execution.workers[worker]):
                self._spawn(self._trigger(worker, begin), f"trigger-{begin.epoch}-{worker}")

    async def _trigger(self, worker: WorkerId, begin: Begin) -> None:
        await crash_point(Step.BEFORE_TRIGGER)
        await self._until_reached(
            worker, begin.epoch, lambda found: self._ports.workers.checkpoint(found, self._owner, begin)
        )
        await crash_point(Step.AFTER_TRIGGER)

    async def _write(self, action: WriteMetadata) -> None:
        completed = Completed(
            self._owner, action.epoch, self._execution.program, action.parts, action.ended, self._now_us()
        )
        try:
            snapshot = await write_checkpoint(self._folder, completed)
        except PenstockError as error:
            self.report(WriteFailed(action.epoch, Failure.of(error)))
        except Exception as error:
            log.exception(LogEvent.CHECKPOINT_CRASHED, epoch=action.epoch)
            message = f"the metadata could not be written: {type(error).__name__}"
            self.report(WriteFailed(action.epoch, Failure(message, None, ErrorDomain.INTERNAL, RetryHint.BACKOFF)))
        else:
            self._ports.keeper.remember(self._owner.job_id, snapshot)
            self.report(Written(action.epoch))

    async def _record(self, action: Record) -> None:
        record = self._records[action.epoch]
        await crash_point(Step.BEFORE_RECORD)
        if action.committing:
            record = self._described(replace(record, state=CheckpointState.COMMITTING))
        else:
            record = self._ended(record, CheckpointState.READY)
        self._records[action.epoch] = record
        await self._ports.journal.write(Entry(record.job_id, None, (), record))
        await crash_point(Step.AFTER_RECORD)
        self.report(Recorded(action.epoch))

    async def _mark_ready(self, action: MarkReady) -> None:
        record = self._records.pop(action.epoch)
        await crash_point(Step.BEFORE_READY)
        if record.state is not CheckpointState.READY:
            record = self._end(record, CheckpointState.READY)
        await crash_point(Step.AFTER_READY)
        log.info(LogEvent.CHECKPOINT_READY, epoch=action.epoch, bytes=record.bytes)
        self._ports.keeper.tidy(self._owner.job_id)

    async def _abandon(self, action: Abandon) -> None:
        reason = action.failure.message
        await crash_point(Step.BEFORE_ABANDON)
        self._end(self._records.pop(action.epoch), CheckpointState.ABANDONED, reason)
        await crash_point(Step.AFTER_ABANDON)
        log.warning(LogEvent.CHECKPOINT_ABANDONED, epoch=action.epoch, reason=reason)
        self._job.warn(replace(action.failure, message=f"checkpoint {action.epoch} was abandoned: {reason}"))

    def _end(self, record: CheckpointRecord, state: CheckpointState, error: str | None = None) -> CheckpointRecord:
        ended = self._ended(record, state, error)
        self._ports.journal.append(Entry(ended.job_id, None, (), ended))
        return ended

    def _ended(self, record: CheckpointRecord, state: CheckpointState, error: str | None = None) -> CheckpointRecord:
        now = self._ports.wall_clock()
        ended = self._described(replace(record, state=state, finished_at=now, error=error))
        self._ports.observer.checkpoint_ended(ended)
        return ended

    def _described(self, record: CheckpointRecord) -> CheckpointRecord:
        history = self._histories.get(record.epoch)
        if history is None:
            return record
        return replace(record, bytes=history.bytes, details=history.details())

    # Commits

    def _send_commits(self, action: SendCommits) -> None:
        """To each worker once at a time; those that are not back from an earlier controller get theirs later."""
        for worker in self._execution.live_workers:
            own = self._execution.workers[worker]
            commits = {task: staged for task, staged in action.commits.items() if task in own}
            key = (action.epoch, worker)
            if commits and key not in self._sending:
                self._sending.add(key)
                self._spawn(self._commit(worker, action.epoch, commits), f"commit-{action.epoch}-{worker}")

    async def _commit(self, worker: WorkerId, epoch: Epoch, commits: Commits) -> None:
        try:
            await crash_point(Step.BEFORE_COMMIT)
            await self._until_reached(
                worker, epoch, lambda found: self._ports.workers.commit(found, self._owner, epoch, commits)
            )
            await crash_point(Step.AFTER_COMMIT)
        finally:
            self._sending.discard((epoch, worker))

    async def _until_reached(self, worker: WorkerId, epoch: Epoch, call: Callable[[Worker], Awaitable[None]]) -> None:
        """Call a worker until it answers, or the epoch is over."""
        told = False
        while self._coordinator is not None and self._coordinator.current == epoch:
            found = self._job.known_workers().get(worker)
            try:
                if found is not None:
                    await call(found)
                    return
            except PenstockError as error:
                if not told:
                    log.warning(LogEvent.CHECKPOINT_SEND_FAILED, epoch=epoch, worker=worker, reason=str(error))
                told = True
            await asyncio.sleep(_RETRY_SECONDS)

    @property
    def _folder(self) -> Storage:
        return self._ports.storage.child(self._owner.job_id)

    def _now_us(self) -> int:
        return (self._ports.wall_clock() - _EPOCH_START) // _MICROSECOND

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"checkpoints-{self._owner}-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # A fault of the code: the job cannot go on without its checkpoints.
            log.error(LogEvent.CHECKPOINT_CRASHED, task=task.get_name(), exc_info=error)
            message = f"the controller failed unexpectedly with the job's checkpoints: {type(error).__name__}"
            self._execution.record_failure(Failure(message, None, ErrorDomain.INTERNAL, RetryHint.NEVER))
            self._job.wake()
