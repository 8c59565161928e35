"""WorkerService: what the controller asks of a worker."""

from __future__ import annotations

from typing import Any, Final

import grpc.aio

from penstock.common.errors import InternalError
from penstock.common.ids import Generation, JobId, PipelineId, WorkerId
from penstock.common.program import NodeKey
from penstock.common.program_proto import program_from_proto
from penstock.common.proto import controller_pb2
from penstock.common.proto import worker_pb2 as proto
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.common.proto.worker_pb2_grpc import WorkerServiceServicer
from penstock.worker.assignment import Assignment, Checkpoints, Job, Peer
from penstock.worker.engine import Execution, TaskState
from penstock.worker.wiring import TaskId
from penstock.worker.worker import StopMode, Worker

_Context = grpc.aio.ServicerContext[Any, Any]

_STOP_MODES: Final = {
    proto.STOP_MODE_GRACEFUL: StopMode.GRACEFUL,
    proto.STOP_MODE_IMMEDIATE: StopMode.IMMEDIATE,
}


class WorkerRpc(WorkerServiceServicer):
    """Serves one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def StartExecution(
        self, request: proto.StartExecutionRequest, context: _Context
    ) -> proto.StartExecutionResponse:
        job = Job(JobId(request.job.job_id), PipelineId(request.pipeline_id), Generation(request.job.generation))
        tasks: list[TaskId] = []
        elsewhere: dict[TaskId, Peer] = {}
        for placement in request.tasks:
            task = TaskId(NodeKey(placement.task.node_id), placement.task.subtask)
            if placement.worker_id == self._worker.id:
                tasks.append(task)
            else:
                elsewhere[task] = Peer(WorkerId(placement.worker_id), placement.data_address)
        checkpoints = None
        if request.HasField("checkpoints"):
            asked = request.checkpoints
            checkpoints = Checkpoints(asked.url, asked.restore, asked.restore_url)
        program = program_from_proto(request.program)
        self._worker.start(Assignment(job, program, tuple(tasks), checkpoints, elsewhere))
        return proto.StartExecutionResponse()

    async def Checkpoint(self, request: proto.CheckpointRequest, context: _Context) -> proto.CheckpointResponse:
        execution = self._worker.execution_of(JobId(request.job.job_id), Generation(request.job.generation))
        await execution.checkpoint(request.epoch, last=request.then_stop)
        return proto.CheckpointResponse()

    async def Commit(self, request: proto.CommitRequest, context: _Context) -> proto.CommitResponse:
        execution = self._worker.execution_of(JobId(request.job.job_id), Generation(request.job.generation))
        for commit in request.commits:
            task = TaskId(NodeKey(commit.task.node_id), commit.task.subtask)
            await execution.commit(task, request.epoch, commit.data)
        return proto.CommitResponse()

    async def StopExecution(
        self, request: proto.StopExecutionRequest, context: _Context
    ) -> proto.StopExecutionResponse:
        mode = _STOP_MODES.get(request.mode)
        if mode is None:
            raise InternalError(f"there is no stop mode {request.mode}")
        self._worker.stop(JobId(request.job.job_id), Generation(request.job.generation), mode)
        return proto.StopExecutionResponse()

    async def GetMetrics(self, request: proto.GetMetricsRequest, context: _Context) -> proto.GetMetricsResponse:
        return proto.GetMetricsResponse(subtasks=metrics_to_proto(self._worker.execution))

    async def GetStatus(self, request: proto.GetStatusRequest, context: _Context) -> proto.GetStatusResponse:
        execution = self._worker.execution
        states = {} if execution is None else execution.states
        return proto.GetStatusResponse(
            worker_id=self._worker.id,
            job=None if self._worker.job is None else self._worker.job.to_proto(),
            tasks=[
                proto.TaskStatus(
                    task=controller_pb2.Task(node_id=task.node, subtask=task.subtask), state=_state_to_proto(state)
                )
                for task, state in states.items()
            ],
        )


def metrics_to_proto(execution: Execution | None) -> list[SubtaskMetrics]:
    """What all subtasks count."""
    return [] if execution is None else [metrics.to_proto() for metrics in execution.metrics]


def _state_to_proto(state: TaskState) -> proto.TaskState.ValueType:
    return proto.TaskState.Value(f"TASK_STATE_{state.name}")
