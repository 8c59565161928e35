"""Two workers as services, told by RPC where the other is."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from penstock.common.config import load_config
from penstock.common.ids import JobId, PipelineId
from penstock.common.program import Edge, EdgeKind, NodeKey, Program
from penstock.common.program_proto import program_to_proto
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto import worker_pb2
from penstock.common.proto.controller_pb2_grpc import (
    ControllerServiceServicer,
    add_ControllerServiceServicer_to_server,
)
from penstock.common.proto.worker_pb2_grpc import WorkerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.common.rpc import serve as serve_rpc
from penstock.common.testing import eventually
from penstock.connectors.base import SourceBatch
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.service import serve
from penstock.worker.settings import WorkerSettings
from penstock.worker.testing import (
    CollectingSink,
    ListSource,
    MemoryConnector,
    PassingEngine,
    node,
    rows,
    sink,
    source,
    value,
)

CONFIG = load_config(environment={})
RPC = CONFIG.section("rpc", RpcSettings)
SHUFFLE = Program(
    (node("a", source(), value("…"), parallelism=2), node("b", sink(), parallelism=2)),
    (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE, ("n",)),),
)


class Controller(ControllerServiceServicer):
    """Knows who has registered, and counts reports."""

    def __init__(self) -> None:
        self.registered: list[proto.RegisterWorkerRequest] = []
        self.finished = 0

    async def RegisterWorker(
        self, request: proto.RegisterWorkerRequest, context: object
    ) -> proto.RegisterWorkerResponse:
        self.registered.append(request)
        return proto.RegisterWorkerResponse()

    async def Heartbeat(self, request: proto.HeartbeatRequest, context: object) -> proto.HeartbeatResponse:
        return proto.HeartbeatResponse(known=True)

    async def TaskStarted(self, request: proto.TaskStartedRequest, context: object) -> proto.TaskStartedResponse:
        return proto.TaskStartedResponse()

    async def TaskFinished(self, request: proto.TaskFinishedRequest, context: object) -> proto.TaskFinishedResponse:
        self.finished += 1
        return proto.TaskFinishedResponse()

    async def WorkerFinished(
        self, request: proto.WorkerFinishedRequest, context: object
    ) -> proto.WorkerFinishedResponse:
        return proto.WorkerFinishedResponse()

    async def start_job(self, program: Program) -> None:
        """Subtask i of all chains on worker i."""
        request = worker_pb2.StartExecutionRequest(
            job=proto.TaskOwner(job_id=JobId.new(), generation=1),
            pipeline_id=PipelineId.new(),
            program=program_to_proto(program),
            tasks=[
                worker_pb2.TaskPlacement(
                    task=proto.Task(node_id=chain.key, subtask=subtask),
                    worker_id=self.registered[subtask].worker_id,
                    data_address=self.registered[subtask].data_address,
                )
                for chain in program.nodes
                for subtask in range(chain.parallelism)
            ],
        )
        for worker in self.registered:
            async with connect(worker.rpc_address, RPC) as channel, calling(RPC):
                await WorkerServiceStub(channel).StartExecution(request)


async def test_two_workers_shuffle_rows_and_show_it_in_their_metrics() -> None:
    controller = Controller()  # type: ignore[abstract]
    server = await serve_rpc(
        lambda server: add_ControllerServiceServicer_to_server(controller, server),
        host="127.0.0.1",
        port=0,
        settings=RPC,
    )
    settings = CONFIG.section("worker", WorkerSettings).model_copy(update={"controller": f"127.0.0.1:{server.port}"})
    gate = asyncio.Event()
    connector = MemoryConnector(
        {("t", n): ListSource([SourceBatch(rows(range(1000)))]) for n in range(2)},
        make_sink=lambda: CollectingSink(gate=gate),
    )
    registry = CollectorRegistry()
    collector = SubtaskCollector(registry)
    async with asyncio.timeout(30), asyncio.TaskGroup() as workers:
        for _ in range(2):
            workers.create_task(
                serve(
                    settings,
                    rpc=RPC,
                    engine=PassingEngine(),
                    collector=collector,
                    connectors={"memory": connector},
                    environment={},
                )
            )
        await eventually(lambda: _holds(len(controller.registered) == 2))
        await controller.start_job(SHUFFLE)
        await eventually(lambda: _holds(_total(registry, "penstock_network_bytes_in_total") > 16_000))
        assert _total(registry, "penstock_network_bytes_out_total") > 16_000
        assert _total(registry, "penstock_network_frames_out_total") > 4
        gate.set()
    await server.close(0)
    assert controller.finished == 4
    assert [len(connector.sinks["out", subtask].numbers) for subtask in range(2)] == [1000, 1000]


async def _holds(condition: bool) -> bool:
    return condition


def _total(registry: CollectorRegistry, name: str) -> float:
    return sum(sample.value for metric in registry.collect() for sample in metric.samples if sample.name == name)
