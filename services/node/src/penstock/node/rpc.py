"""NodeService, and the controller as this node calls it: messages to the domain and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import grpc.aio

from penstock.common.ids import NodeId, WorkerId
from penstock.common.proto import controller_pb2
from penstock.common.proto import node_pb2 as proto
from penstock.common.proto.node_pb2_grpc import NodeServiceServicer
from penstock.common.rpc import RpcSettings, calling
from penstock.node.supervisor import Supervisor

if TYPE_CHECKING:
    from penstock.common.proto.controller_pb2_grpc import ControllerServiceAsyncStub

Context = grpc.aio.ServicerContext[Any, Any]


class NodeRpc(NodeServiceServicer):
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def StartWorker(self, request: proto.StartWorkerRequest, context: Context) -> proto.StartWorkerResponse:
        worker = await self._supervisor.start_worker(request.owner, request.slots)
        return proto.StartWorkerResponse(worker_id=worker)

    async def StopWorker(self, request: proto.StopWorkerRequest, context: Context) -> proto.StopWorkerResponse:
        await self._supervisor.stop_worker(WorkerId(request.worker_id), force=request.force)
        return proto.StopWorkerResponse()

    async def GetWorkers(self, request: proto.GetWorkersRequest, context: Context) -> proto.GetWorkersResponse:
        return proto.GetWorkersResponse(
            workers=[
                proto.WorkerInfo(worker_id=each.worker_id, owner=each.owner, slots=each.slots, pid=each.pid)
                for each in self._supervisor.workers
            ]
        )


class RpcController:
    def __init__(self, stub: ControllerServiceAsyncStub, settings: RpcSettings) -> None:
        self._stub = stub
        self._settings = settings

    async def register(self, node: NodeId, rpc_address: str, slots: int) -> None:
        request = controller_pb2.RegisterNodeRequest(node_id=node, rpc_address=rpc_address, slots=slots)
        async with calling(self._settings):
            await self._stub.RegisterNode(request)

    async def heartbeat(self, node: NodeId, slots_used: int, workers: Iterable[WorkerId]) -> bool:
        request = controller_pb2.HeartbeatNodeRequest(node_id=node, slots_used=slots_used, worker_ids=workers)
        async with calling(self._settings):
            return (await self._stub.HeartbeatNode(request)).known
