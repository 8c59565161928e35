"""What the controller asks of workers, over WorkerService."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.common.ids import PipelineId, WorkerId
from penstock.common.jobs import StopMode
from penstock.common.program import NodeKey, Program, program_to_proto
from penstock.common.proto import controller_pb2, worker_pb2
from penstock.common.proto.worker_pb2_grpc import WorkerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.controller.records import TaskId, TaskOwner
from penstock.controller.registry import Worker

_STOP_MODES: Final = {
    StopMode.GRACEFUL: worker_pb2.STOP_MODE_GRACEFUL,
    StopMode.IMMEDIATE: worker_pb2.STOP_MODE_IMMEDIATE,
}


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """What every worker of a generation is told: the whole program, and who runs which task."""

    owner: TaskOwner
    pipeline_id: PipelineId
    program: Program
    tasks: Mapping[WorkerId, Iterable[TaskId]]


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The tasks that a worker has, and how far they are."""

    tasks: frozenset[TaskId]
    started: frozenset[TaskId]
    finished: frozenset[TaskId]
    failed: frozenset[TaskId]


class RpcWorkers:
    """Calls workers; a call that fails raises the worker's error or PeerUnavailable."""

    def __init__(self, settings: RpcSettings) -> None:
        self._settings = settings

    async def start_execution(self, plan: ExecutionPlan, workers: Mapping[WorkerId, Worker], worker: Worker) -> None:
        request = worker_pb2.StartExecutionRequest(
            job=_owner(plan.owner),
            pipeline_id=plan.pipeline_id,
            program=program_to_proto(plan.program),
            tasks=[
                worker_pb2.TaskPlacement(
                    task=controller_pb2.Task(node_id=task.node, subtask=task.subtask),
                    worker_id=worker_id,
                    data_address=workers[worker_id].data_address,
                )
                for worker_id, tasks in plan.tasks.items()
                for task in sorted(tasks)
            ],
        )
        async with connect(worker.rpc_address, self._settings) as channel, calling(self._settings):
            await WorkerServiceStub(channel).StartExecution(request)

    async def stop_execution(self, worker: Worker, owner: TaskOwner, mode: StopMode) -> None:
        request = worker_pb2.StopExecutionRequest(job=_owner(owner), mode=_STOP_MODES[mode])
        async with connect(worker.rpc_address, self._settings) as channel, calling(self._settings):
            await WorkerServiceStub(channel).StopExecution(request)

    async def get_status(self, worker: Worker) -> WorkerStatus:
        async with connect(worker.rpc_address, self._settings) as channel, calling(self._settings):
            response = await WorkerServiceStub(channel).GetStatus(worker_pb2.GetStatusRequest())
        states = {TaskId(NodeKey(each.task.node_id), each.task.subtask): each.state for each in response.tasks}

        def having(*wanted: worker_pb2.TaskState.ValueType) -> frozenset[TaskId]:
            return frozenset(task for task, state in states.items() if state in wanted)

        return WorkerStatus(
            tasks=frozenset(states),
            started=having(worker_pb2.TASK_STATE_RUNNING, worker_pb2.TASK_STATE_FINISHED),
            finished=having(worker_pb2.TASK_STATE_FINISHED),
            failed=having(worker_pb2.TASK_STATE_FAILED),
        )


def _owner(owner: TaskOwner) -> controller_pb2.TaskOwner:
    return controller_pb2.TaskOwner(job_id=owner.job_id, generation=owner.generation)
