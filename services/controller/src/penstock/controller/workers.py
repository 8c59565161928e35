"""What the controller asks of workers, over WorkerService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import grpc.aio

from penstock.common.errors import PeerUnavailable
from penstock.common.ids import Epoch, PipelineId, WorkerId
from penstock.common.jobs import StopMode
from penstock.common.program import NodeKey, Program
from penstock.common.program_proto import program_to_proto
from penstock.common.proto import controller_pb2, worker_pb2
from penstock.common.proto.worker_pb2_grpc import WorkerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.controller.checkpoints.messages import Begin, Commits
from penstock.controller.checkpoints.restoring import CheckpointPlan
from penstock.controller.records import TaskId, TaskOwner
from penstock.controller.registry import Worker

_KEPT_CHANNELS: Final = 1024
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
    checkpoints: CheckpointPlan | None = None


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The tasks that a worker has, and how far they are."""

    tasks: frozenset[TaskId]
    started: frozenset[TaskId]
    finished: frozenset[TaskId]
    failed: frozenset[TaskId]


class RpcWorkers:
    """Calls workers, as a leader of some generation; a call that fails raises the worker's error or PeerUnavailable."""

    def __init__(self, settings: RpcSettings, leads: int) -> None:
        self._settings = settings
        self._leads = leads
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        await asyncio.gather(*(channel.close(None) for channel in self._channels.values()))

    @asynccontextmanager
    async def _calling(self, worker: Worker) -> AsyncIterator[grpc.aio.Channel]:
        channel = self._channels.pop(worker.rpc_address, None)
        if channel is None:
            channel = connect(worker.rpc_address, self._settings, leads=self._leads)
        self._channels[worker.rpc_address] = channel
        if len(self._channels) > _KEPT_CHANNELS:
            # The one that was not called for the longest time.
            await self._channels.pop(next(iter(self._channels))).close(None)
        try:
            async with calling(self._settings):
                yield channel
        except PeerUnavailable:
            # The next call should not wait for this one's backoff.
            if self._channels.get(worker.rpc_address) is channel:
                del self._channels[worker.rpc_address]
            await channel.close(None)
            raise

    async def start_execution(self, plan: ExecutionPlan, workers: Mapping[WorkerId, Worker], worker: Worker) -> None:
        request = worker_pb2.StartExecutionRequest(
            job=_owner(plan.owner),
            pipeline_id=plan.pipeline_id,
            program=program_to_proto(plan.program),
            tasks=[
                worker_pb2.TaskPlacement(
                    task=_task(task),
                    worker_id=worker_id,
                    data_address=workers[worker_id].data_address,
                )
                for worker_id, tasks in plan.tasks.items()
                for task in sorted(tasks)
            ],
            checkpoints=_checkpoints(plan.checkpoints),
        )
        async with self._calling(worker) as channel:
            await WorkerServiceStub(channel).StartExecution(request)

    async def checkpoint(self, worker: Worker, owner: TaskOwner, begin: Begin) -> None:
        request = worker_pb2.CheckpointRequest(
            job=_owner(owner), epoch=begin.epoch, min_epoch=begin.min_epoch, then_stop=begin.then_stop
        )
        async with self._calling(worker) as channel:
            await WorkerServiceStub(channel).Checkpoint(request)

    async def commit(self, worker: Worker, owner: TaskOwner, epoch: Epoch, commits: Commits) -> None:
        request = worker_pb2.CommitRequest(
            job=_owner(owner),
            epoch=epoch,
            commits=[
                worker_pb2.TaskCommit(task=_task(task), operator_id=staged.operator, data=staged.data)
                for task in sorted(commits)
                for staged in commits[task]
            ],
        )
        async with self._calling(worker) as channel:
            await WorkerServiceStub(channel).Commit(request)

    async def stop_execution(self, worker: Worker, owner: TaskOwner, mode: StopMode) -> None:
        request = worker_pb2.StopExecutionRequest(job=_owner(owner), mode=_STOP_MODES[mode])
        async with self._calling(worker) as channel:
            await WorkerServiceStub(channel).StopExecution(request)

    async def get_status(self, worker: Worker) -> WorkerStatus:
        async with self._calling(worker) as channel:
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


def _checkpoints(plan: CheckpointPlan | None) -> worker_pb2.Checkpoints | None:
    if plan is None:
        return None
    return worker_pb2.Checkpoints(url=plan.url, restore=plan.restore, restore_url=plan.restore_url)


def _task(task: TaskId) -> controller_pb2.Task:
    return controller_pb2.Task(node_id=task.node, subtask=task.subtask)


def _owner(owner: TaskOwner) -> controller_pb2.TaskOwner:
    return controller_pb2.TaskOwner(job_id=owner.job_id, generation=owner.generation)
