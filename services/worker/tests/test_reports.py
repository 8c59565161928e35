"""What a worker reports, to a controller that is slow or away for a moment."""

from __future__ import annotations

import asyncio

import grpc.aio

from penstock.common.config import load_config
from penstock.common.errors import PeerUnavailable
from penstock.common.ids import Generation, JobId, PipelineId, WorkerId
from penstock.common.program import NodeKey
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.controller_pb2_grpc import (
    ControllerServiceServicer,
    ControllerServiceStub,
    add_ControllerServiceServicer_to_server,
)
from penstock.common.rpc import RpcSettings, connect, serve
from penstock.worker.assignment import Job
from penstock.worker.reports import CheckpointStep, ControllerReporter
from penstock.worker.wiring import TaskId


class Controller(ControllerServiceServicer):
    """Is away when it is first told something, and then takes its time."""

    def __init__(self) -> None:
        self.told: list[list[tuple[str, int]]] = []
        self.came = asyncio.Event()
        self.goes_on = asyncio.Event()
        self._away = True

    async def TaskCheckpointEvent(
        self, request: proto.TaskCheckpointEventRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> proto.TaskCheckpointEventResponse:
        if self._away:
            self._away = False
            raise PeerUnavailable("not yet")
        self.told.append([(event.task.node_id, event.step) for event in request.events])
        self.came.set()
        await self.goes_on.wait()
        return proto.TaskCheckpointEventResponse()


async def test_events_of_checkpoints_go_together_and_none_is_lost_or_repeated() -> None:
    settings = load_config(environment={}).section("rpc", RpcSettings)
    controller = Controller()  # type: ignore[abstract]
    server = await serve(
        lambda server: add_ControllerServiceServicer_to_server(controller, server),
        host="127.0.0.1",
        port=0,
        settings=settings,
    )
    job = Job(JobId.new(), PipelineId.new(), Generation(1))
    async with connect(f"127.0.0.1:{server.port}", settings) as channel:
        reporter = ControllerReporter(ControllerServiceStub(channel), settings, WorkerId.new(), job)
        for step in CheckpointStep:
            reporter.checkpoint_event(TaskId(NodeKey("a"), 0), 1, step, 0.0)
        sending = asyncio.create_task(reporter.run())
        async with asyncio.timeout(10):
            await controller.came.wait()
            for step in CheckpointStep:
                reporter.checkpoint_event(TaskId(NodeKey("b"), 0), 1, step, 0.0)
            controller.goes_on.set()
            await reporter.delivered()
        sending.cancel()
        await asyncio.wait((sending,))
    await server.close()
    assert controller.told == [[(node, step.value) for step in CheckpointStep] for node in "ab"]
