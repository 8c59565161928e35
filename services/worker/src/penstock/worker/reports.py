"""What a worker tells the controller about its subtasks, and how it goes on telling while the controller is away."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from penstock.common.errors import PenstockError, RetryHint
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.checkpoint_pb2 import OperatorState
from penstock.common.proto.error_pb2 import ErrorDetail
from penstock.common.rpc import RpcSettings, calling
from penstock.common.rpc_errors import encode_error
from penstock.worker.assignment import Job
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.wiring import TaskId

if TYPE_CHECKING:
    from penstock.common.proto.controller_pb2_grpc import ControllerServiceAsyncStub

_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


class CheckpointStep(Enum):
    """How far a subtask is with a checkpoint."""

    ALIGNMENT_STARTED = proto.CHECKPOINT_STEP_ALIGNMENT_STARTED
    STARTED = proto.CHECKPOINT_STEP_STARTED
    FROZEN = proto.CHECKPOINT_STEP_FROZEN


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Preview rows of a table, as lines of JSON."""

    table: str
    subtask: int
    rows: int
    lines: bytes


class Reporter(Protocol):
    """Takes the reports of one job. All but `send_output` return at once and arrive in order."""

    def task_started(self, task: TaskId) -> None: ...

    def task_finished(self, task: TaskId, metrics: SubtaskMetrics) -> None: ...

    def task_failed(self, task: TaskId, error: PenstockError) -> None: ...

    def nonfatal_error(self, task: TaskId, error: PenstockError) -> None: ...

    def task_ended(self, task: TaskId) -> None:
        """A source has no more rows, and waits for the last checkpoint."""
        ...

    def checkpoint_event(self, task: TaskId, epoch: int, step: CheckpointStep, at: float) -> None:
        """At a time in seconds since 1970."""
        ...

    def checkpoint_completed(
        self, task: TaskId, epoch: int, watermark: int, operators: Sequence[OperatorState]
    ) -> None: ...

    def checkpoint_failed(self, task: TaskId, epoch: int, error: PenstockError) -> None: ...

    def task_committed(self, task: TaskId, epoch: int) -> None: ...

    def worker_finished(self) -> None: ...

    async def send_output(self, rows: OutputRows) -> None:
        """Returns when there is room for more."""
        ...

    async def delivered(self) -> None:
        """Waits until every report so far has arrived or was refused."""
        ...


_Call = Callable[[], Awaitable[object]]


class ControllerReporter:
    """Reports over gRPC, again and again while the controller cannot be reached.

    What waits is bounded by the number of subtasks: each is reported a few times in its life, and a few times with each
    checkpoint, of which there is none while the controller is away.
    """

    def __init__(
        self, controller: ControllerServiceAsyncStub, settings: RpcSettings, worker: WorkerId, job: Job
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._worker = worker
        self._job = job.to_proto()
        self._reports: asyncio.Queue[tuple[str, _Call]] = asyncio.Queue()
        self._events: list[proto.CheckpointEvent] | None = None
        self._sent: Counter[tuple[str, int]] = Counter()

    def task_started(self, task: TaskId) -> None:
        request = proto.TaskStartedRequest(worker_id=self._worker, job=self._job, task=_task(task))
        self._put("task_started", lambda: self._controller.TaskStarted(request))

    def task_finished(self, task: TaskId, metrics: SubtaskMetrics) -> None:
        request = proto.TaskFinishedRequest(
            worker_id=self._worker, job=self._job, task=_task(task), metrics=metrics.to_proto()
        )
        self._put("task_finished", lambda: self._controller.TaskFinished(request))

    def task_failed(self, task: TaskId, error: PenstockError) -> None:
        request = proto.TaskFailedRequest(worker_id=self._worker, job=self._job, task=_task(task), error=_detail(error))
        self._put("task_failed", lambda: self._controller.TaskFailed(request))

    def nonfatal_error(self, task: TaskId, error: PenstockError) -> None:
        request = proto.NonfatalErrorRequest(
            worker_id=self._worker, job=self._job, task=_task(task), error=_detail(error)
        )
        self._put("nonfatal_error", lambda: self._controller.NonfatalError(request))

    def task_ended(self, task: TaskId) -> None:
        request = proto.TaskEndedRequest(worker_id=self._worker, job=self._job, task=_task(task))
        self._put("task_ended", lambda: self._controller.TaskEnded(request))

    def checkpoint_event(self, task: TaskId, epoch: int, step: CheckpointStep, at: float) -> None:
        if self._events is None:
            events = self._events = []
            self._put("checkpoint_event", lambda: self._send_events(events))
        self._events.append(proto.CheckpointEvent(task=_task(task), epoch=epoch, step=step.value, at_us=int(at * 1e6)))

    def checkpoint_completed(
        self, task: TaskId, epoch: int, watermark: int, operators: Sequence[OperatorState]
    ) -> None:
        request = proto.TaskCheckpointCompletedRequest(
            worker_id=self._worker,
            job=self._job,
            task=_task(task),
            epoch=epoch,
            watermark_us=watermark,
            operators=operators,
            at_us=time.time_ns() // 1000,
        )
        self._put("checkpoint_completed", lambda: self._controller.TaskCheckpointCompleted(request))

    def checkpoint_failed(self, task: TaskId, epoch: int, error: PenstockError) -> None:
        request = proto.TaskCheckpointFailedRequest(
            worker_id=self._worker, job=self._job, task=_task(task), epoch=epoch, error=_detail(error)
        )
        self._put("checkpoint_failed", lambda: self._controller.TaskCheckpointFailed(request))

    def task_committed(self, task: TaskId, epoch: int) -> None:
        request = proto.TaskCommittedRequest(worker_id=self._worker, job=self._job, task=_task(task), epoch=epoch)
        self._put("task_committed", lambda: self._controller.TaskCommitted(request))

    def worker_finished(self) -> None:
        request = proto.WorkerFinishedRequest(worker_id=self._worker, job=self._job)
        self._put("worker_finished", lambda: self._controller.WorkerFinished(request))

    async def send_output(self, rows: OutputRows) -> None:
        data = proto.OutputData(table=rows.table, subtask=rows.subtask, rows=rows.rows, lines=rows.lines)
        self._sent[rows.table, rows.subtask] += 1
        sequence = self._sent[rows.table, rows.subtask]
        request = proto.SendSinkDataRequest(worker_id=self._worker, job=self._job, data=data, sequence=sequence)
        await self._deliver("send_output", lambda: self._controller.SendSinkData(request))

    async def run(self) -> None:
        """Sends reports until it is cancelled."""
        while True:
            await self._deliver(*await self._reports.get())
            self._reports.task_done()

    async def delivered(self) -> None:
        await self._reports.join()

    async def _send_events(self, events: list[proto.CheckpointEvent]) -> None:
        if self._events is events:
            self._events = None  # those that come from now on go together
        request = proto.TaskCheckpointEventRequest(worker_id=self._worker, job=self._job, events=events)
        await self._controller.TaskCheckpointEvent(request)

    def _put(self, name: str, call: _Call) -> None:
        self._reports.put_nowait((name, call))

    async def _deliver(self, name: str, call: _Call) -> None:
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                async with calling(self._settings):
                    await call()
                return
            except PenstockError as error:
                if error.retry is RetryHint.NEVER:
                    log.warning(LogEvent.REPORT_REFUSED, report=name, reason=str(error))
                    return
                log.warning(LogEvent.REPORT_DELAYED, report=name, reason=str(error), delay_ms=round(delay * 1000))
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY_SECONDS)


def _task(task: TaskId) -> proto.Task:
    return proto.Task(node_id=task.node, subtask=task.subtask)


def _detail(error: PenstockError) -> ErrorDetail:
    return ErrorDetail.FromString(encode_error(error))
