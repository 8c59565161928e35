"""ControllerService: messages to the domain and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc.aio

from penstock.common.errors import ErrorDomain, FencedError, RetryHint
from penstock.common.ids import Generation, JobId, NodeId, WorkerId
from penstock.common.program import NodeKey
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.controller_pb2_grpc import ControllerServiceServicer
from penstock.common.proto.error_pb2 import ErrorDetail
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.controller.jobs import Jobs
from penstock.controller.output import OutputData
from penstock.controller.records import Failure, TaskId, TaskOwner
from penstock.controller.registry import Registry

Context = grpc.aio.ServicerContext[Any, Any]


class ControllerRpc(ControllerServiceServicer):
    def __init__(self, jobs: Jobs, registry: Registry) -> None:
        self._jobs = jobs
        self._registry = registry

    async def RegisterNode(self, request: proto.RegisterNodeRequest, context: Context) -> proto.RegisterNodeResponse:
        self._registry.register_node(NodeId(request.node_id), request.rpc_address, request.slots)
        return proto.RegisterNodeResponse()

    async def HeartbeatNode(self, request: proto.HeartbeatNodeRequest, context: Context) -> proto.HeartbeatNodeResponse:
        alive = frozenset(map(WorkerId, request.worker_ids))
        known = self._registry.heartbeat_node(NodeId(request.node_id), request.slots_used, alive)
        return proto.HeartbeatNodeResponse(known=known)

    async def RegisterWorker(
        self, request: proto.RegisterWorkerRequest, context: Context
    ) -> proto.RegisterWorkerResponse:
        self._jobs.register_worker(
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
                self._jobs.heartbeat(worker, _owner(request.job), _metrics(request.metrics))
            except FencedError:
                return proto.HeartbeatResponse(known=True, fenced=True)
        return proto.HeartbeatResponse(known=self._registry.heartbeat_worker(worker))

    async def TaskStarted(self, request: proto.TaskStartedRequest, context: Context) -> proto.TaskStartedResponse:
        self._jobs.task_started(_owner(request.job), _task(request.task))
        return proto.TaskStartedResponse()

    async def TaskFinished(self, request: proto.TaskFinishedRequest, context: Context) -> proto.TaskFinishedResponse:
        self._jobs.task_finished(_owner(request.job), _task(request.task), request.metrics)
        return proto.TaskFinishedResponse()

    async def TaskFailed(self, request: proto.TaskFailedRequest, context: Context) -> proto.TaskFailedResponse:
        self._jobs.task_failed(_owner(request.job), _failure(request.task, request.error))
        return proto.TaskFailedResponse()

    async def WorkerFinished(
        self, request: proto.WorkerFinishedRequest, context: Context
    ) -> proto.WorkerFinishedResponse:
        self._jobs.worker_finished(_owner(request.job), WorkerId(request.worker_id))
        return proto.WorkerFinishedResponse()

    async def NonfatalError(self, request: proto.NonfatalErrorRequest, context: Context) -> proto.NonfatalErrorResponse:
        self._jobs.nonfatal_error(_owner(request.job), _failure(request.task, request.error))
        return proto.NonfatalErrorResponse()

    async def SendSinkData(self, request: proto.SendSinkDataRequest, context: Context) -> proto.SendSinkDataResponse:
        data = request.data
        output = OutputData(data.table, data.subtask, data.rows, data.lines)
        await self._jobs.send_output(_owner(request.job), output, request.sequence)
        return proto.SendSinkDataResponse()

    async def SubscribeToOutput(
        self, request: proto.SubscribeToOutputRequest, context: Context
    ) -> AsyncIterator[proto.OutputData]:
        async for data in self._jobs.read_output(JobId(request.job_id)):
            yield proto.OutputData(table=data.table, subtask=data.subtask, rows=data.rows, lines=data.lines)

    async def JobMetrics(self, request: proto.JobMetricsRequest, context: Context) -> proto.JobMetricsResponse:
        generation, subtasks = await self._jobs.job_metrics(JobId(request.job_id))
        return proto.JobMetricsResponse(generation=generation, subtasks=[subtasks[task] for task in sorted(subtasks)])


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
