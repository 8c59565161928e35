"""ControllerService: messages to the domain and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol

import grpc.aio
import structlog

from penstock.common.crash_points import crash_point
from penstock.common.errors import ErrorDomain, FencedError, NotLeader, RetryHint
from penstock.common.events import LogEvent
from penstock.common.fencing import GENERATION_KEY, UNSURE_KEY
from penstock.common.ids import Epoch, Generation, JobId, NodeId, WorkerId
from penstock.common.program import NodeKey
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.controller_pb2_grpc import ControllerServiceServicer
from penstock.common.proto.error_pb2 import ErrorDetail
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.controller.checkpoints.messages import Part, TaskCommitted, TaskCompleted, TaskEnded, TaskRefused
from penstock.controller.checkpoints.steps import Step
from penstock.controller.jobs import Jobs
from penstock.controller.output import OutputData
from penstock.controller.records import Failure, TaskId, TaskOwner
from penstock.controller.registry import Registry

Context = grpc.aio.ServicerContext[Any, Any]

log = structlog.get_logger(__name__)


class Leadership(Protocol):
    """Who leads."""

    @property
    def leads(self) -> bool: ...

    @property
    def leader(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def is_unsure(self) -> bool: ...

    def refusal(self) -> NotLeader: ...


class Term(Protocol):
    """What there is while this controller leads."""

    @property
    def jobs(self) -> Jobs: ...

    @property
    def registry(self) -> Registry: ...

    @property
    def ended(self) -> asyncio.Event: ...


class ControllerRpc(ControllerServiceServicer):
    """Answers while this controller leads, and else refuses."""

    def __init__(self, leadership: Leadership, term: Callable[[], Term | None]) -> None:
        self._leadership = leadership
        self._term = term

    async def GetLeader(self, request: proto.GetLeaderRequest, context: Context) -> proto.GetLeaderResponse:
        leadership = self._leadership
        return proto.GetLeaderResponse(
            leads=leadership.leads and self._term() is not None,
            address=leadership.leader,
            generation=leadership.generation,
        )

    def _leading(self, context: Context) -> Term:
        """What answers, which says of which generation it is; raises NotLeader."""
        leadership, term = self._leadership, self._term()
        if term is None or not leadership.leads:
            raise leadership.refusal()
        unsure = ((UNSURE_KEY, "true"),) if leadership.is_unsure else ()
        context.set_trailing_metadata(((GENERATION_KEY, str(leadership.generation)), *unsure))
        return term

    async def RegisterNode(self, request: proto.RegisterNodeRequest, context: Context) -> proto.RegisterNodeResponse:
        self._leading(context).registry.register_node(NodeId(request.node_id), request.rpc_address, request.slots)
        return proto.RegisterNodeResponse()

    async def HeartbeatNode(self, request: proto.HeartbeatNodeRequest, context: Context) -> proto.HeartbeatNodeResponse:
        alive = frozenset(map(WorkerId, request.worker_ids))
        known = self._leading(context).registry.heartbeat_node(NodeId(request.node_id), request.slots_used, alive)
        return proto.HeartbeatNodeResponse(known=known)

    async def RegisterWorker(
        self, request: proto.RegisterWorkerRequest, context: Context
    ) -> proto.RegisterWorkerResponse:
        self._leading(context).jobs.register_worker(
            WorkerId(request.worker_id),
            NodeId(request.node_id) if request.node_id else None,
            request.rpc_address,
            request.data_address,
            _owner(request.job) if request.HasField("job") else None,
        )
        return proto.RegisterWorkerResponse()

    async def Heartbeat(self, request: proto.HeartbeatRequest, context: Context) -> proto.HeartbeatResponse:
        worker = WorkerId(request.worker_id)
        if request.HasField("job"):
            try:
                self._leading(context).jobs.heartbeat(worker, _owner(request.job), _metrics(request.metrics))
            except FencedError as error:
                log.warning(LogEvent.CALL_REFUSED, method="Heartbeat", peer=context.peer(), reason=str(error))
                return proto.HeartbeatResponse(known=True, fenced=True)
        return proto.HeartbeatResponse(known=self._leading(context).registry.heartbeat_worker(worker))

    async def TaskStarted(self, request: proto.TaskStartedRequest, context: Context) -> proto.TaskStartedResponse:
        self._leading(context).jobs.task_started(_owner(request.job), _task(request.task))
        return proto.TaskStartedResponse()

    async def TaskEnded(self, request: proto.TaskEndedRequest, context: Context) -> proto.TaskEndedResponse:
        await crash_point(Step.BEFORE_ENDED)
        self._leading(context).jobs.report(_owner(request.job), TaskEnded(_task(request.task)))
        await crash_point(Step.AFTER_ENDED)
        return proto.TaskEndedResponse()

    async def TaskCheckpointEvent(
        self, request: proto.TaskCheckpointEventRequest, context: Context
    ) -> proto.TaskCheckpointEventResponse:
        steps = [(Epoch(each.epoch), _task(each.task), each.step, each.at_us) for each in request.events]
        self._leading(context).jobs.task_checkpoint_events(_owner(request.job), steps)
        return proto.TaskCheckpointEventResponse()

    async def TaskCheckpointCompleted(
        self, request: proto.TaskCheckpointCompletedRequest, context: Context
    ) -> proto.TaskCheckpointCompletedResponse:
        part = Part(tuple(request.operators), request.watermark_us, request.at_us)
        await crash_point(Step.BEFORE_COMPLETED)
        self._leading(context).jobs.report(
            _owner(request.job), TaskCompleted(Epoch(request.epoch), _task(request.task), part)
        )
        await crash_point(Step.AFTER_COMPLETED)
        return proto.TaskCheckpointCompletedResponse()

    async def TaskCheckpointFailed(
        self, request: proto.TaskCheckpointFailedRequest, context: Context
    ) -> proto.TaskCheckpointFailedResponse:
        failure = _failure(request.task, request.error)
        self._leading(context).jobs.report(
            _owner(request.job), TaskRefused(Epoch(request.epoch), _task(request.task), failure)
        )
        return proto.TaskCheckpointFailedResponse()

    async def TaskCommitted(self, request: proto.TaskCommittedRequest, context: Context) -> proto.TaskCommittedResponse:
        await crash_point(Step.BEFORE_COMMITTED)
        self._leading(context).jobs.report(
            _owner(request.job), TaskCommitted(Epoch(request.epoch), _task(request.task))
        )
        await crash_point(Step.AFTER_COMMITTED)
        return proto.TaskCommittedResponse()

    async def TaskFinished(self, request: proto.TaskFinishedRequest, context: Context) -> proto.TaskFinishedResponse:
        self._leading(context).jobs.task_finished(_owner(request.job), _task(request.task), request.metrics)
        return proto.TaskFinishedResponse()

    async def TaskFailed(self, request: proto.TaskFailedRequest, context: Context) -> proto.TaskFailedResponse:
        self._leading(context).jobs.task_failed(_owner(request.job), _failure(request.task, request.error))
        return proto.TaskFailedResponse()

    async def WorkerFinished(
        self, request: proto.WorkerFinishedRequest, context: Context
    ) -> proto.WorkerFinishedResponse:
        self._leading(context).jobs.worker_finished(_owner(request.job), WorkerId(request.worker_id))
        return proto.WorkerFinishedResponse()

    async def NonfatalError(self, request: proto.NonfatalErrorRequest, context: Context) -> proto.NonfatalErrorResponse:
        self._leading(context).jobs.nonfatal_error(_owner(request.job), _failure(request.task, request.error))
        return proto.NonfatalErrorResponse()

    async def SendSinkData(self, request: proto.SendSinkDataRequest, context: Context) -> proto.SendSinkDataResponse:
        data = request.data
        output = OutputData(data.table, data.subtask, data.rows, data.lines)
        await self._leading(context).jobs.send_output(_owner(request.job), output, request.sequence)
        return proto.SendSinkDataResponse()

    async def SubscribeToOutput(
        self, request: proto.SubscribeToOutputRequest, context: Context
    ) -> AsyncIterator[proto.OutputData]:
        term = self._leading(context)
        async for data in _until(term.ended, term.jobs.read_output(JobId(request.job_id))):
            yield proto.OutputData(table=data.table, subtask=data.subtask, rows=data.rows, lines=data.lines)
        if term.ended.is_set():
            raise self._leadership.refusal()

    async def JobMetrics(self, request: proto.JobMetricsRequest, context: Context) -> proto.JobMetricsResponse:
        generation, subtasks = await self._leading(context).jobs.job_metrics(JobId(request.job_id))
        return proto.JobMetricsResponse(generation=generation, subtasks=[subtasks[task] for task in sorted(subtasks)])


async def _until(ended: asyncio.Event, source: AsyncIterator[OutputData]) -> AsyncIterator[OutputData]:
    """What a source gives, up to an event."""
    ending = asyncio.ensure_future(ended.wait())
    reading: asyncio.Future[OutputData] | None = None
    try:
        while True:
            reading = asyncio.ensure_future(anext(source))
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return
            try:
                data = reading.result()
            except StopAsyncIteration:
                return
            yield data
    finally:
        for waiting in (reading, ending):
            if waiting is not None:
                waiting.cancel()


def _owner(message: proto.TaskOwner) -> TaskOwner:
    return TaskOwner(JobId(message.job_id), Generation(message.generation))


def _task(message: proto.Task) -> TaskId:
    return TaskId(NodeKey(message.node_id), message.subtask)


def _metrics(messages: Iterable[SubtaskMetrics]) -> list[tuple[TaskId, SubtaskMetrics]]:
    return [(TaskId(NodeKey(message.node_id), message.subtask), message) for message in messages]


def _failure(task: proto.Task, error: ErrorDetail) -> Failure:
    """What a worker says went wrong; a word that this side does not know is taken as a fault of the worker's."""
    domain = ErrorDomain(error.domain) if error.domain in set(ErrorDomain) else ErrorDomain.INTERNAL
    retry = RetryHint(error.retry) if error.retry in set(RetryHint) else RetryHint.NEVER
    return Failure(
        error.message or error.kind, error.hint or None, domain, retry, _task(task) if task.node_id else None
    )
