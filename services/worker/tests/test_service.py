"""The worker against a controller that is real in its protocol, and a process with an engine of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client import CollectorRegistry

from penstock.common.config import load_config
from penstock.common.errors import UserError
from penstock.common.ids import JobId, PipelineId
from penstock.common.program import Program
from penstock.common.program_proto import program_to_proto
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto import worker_pb2
from penstock.common.proto.controller_pb2_grpc import (
    ControllerServiceServicer,
    add_ControllerServiceServicer_to_server,
)
from penstock.common.proto.worker_pb2_grpc import WorkerServiceStub
from penstock.common.rpc import RpcServer, RpcSettings, calling, connect
from penstock.common.rpc import serve as serve_rpc
from penstock.common.testing import eventually
from penstock.connectors.base import NONE_HELD, SourceBatch
from penstock.spark.errors import EngineLost
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.service import serve
from penstock.worker.settings import WorkerSettings
from penstock.worker.testing import ListSource, MemoryConnector, PassingEngine, node, rows, sink, source

CONFIG = load_config(environment={})
RPC = CONFIG.section("rpc", RpcSettings)
CHAIN = Program((node("a", source(), sink()),), ())


class Controller(ControllerServiceServicer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.registered: list[proto.RegisterWorkerRequest] = []
        self.heartbeats: list[proto.HeartbeatRequest] = []
        self.reports: list[str] = []
        self.failures: list[proto.TaskFailedRequest] = []
        self.answer = proto.HeartbeatResponse(known=True)
        self.server: RpcServer | None = None

    async def listen(self, port: int = 0) -> int:
        def add(server: Any) -> None:
            add_ControllerServiceServicer_to_server(self, server)

        self.server = await serve_rpc(add, host="127.0.0.1", port=port, settings=RPC)
        return self.server.port

    async def close(self) -> None:
        if self.server is not None:
            await self.server.close(0)

    async def RegisterWorker(self, request: proto.RegisterWorkerRequest, context: Any) -> proto.RegisterWorkerResponse:
        self.registered.append(request)
        return proto.RegisterWorkerResponse()

    async def Heartbeat(self, request: proto.HeartbeatRequest, context: Any) -> proto.HeartbeatResponse:
        self.heartbeats.append(request)
        answer, self.answer = self.answer, proto.HeartbeatResponse(known=True)
        return answer

    async def TaskStarted(self, request: proto.TaskStartedRequest, context: Any) -> proto.TaskStartedResponse:
        self.reports.append("started")
        return proto.TaskStartedResponse()

    async def TaskFinished(self, request: proto.TaskFinishedRequest, context: Any) -> proto.TaskFinishedResponse:
        self.reports.append(f"finished {request.metrics.rows_out}")
        return proto.TaskFinishedResponse()

    async def TaskFailed(self, request: proto.TaskFailedRequest, context: Any) -> proto.TaskFailedResponse:
        self.reports.append("failed")
        self.failures.append(request)
        return proto.TaskFailedResponse()

    async def WorkerFinished(self, request: proto.WorkerFinishedRequest, context: Any) -> proto.WorkerFinishedResponse:
        self.reports.append("ended")
        return proto.WorkerFinishedResponse()

    async def start_job(self, program: Program) -> proto.TaskOwner:
        registered = self.registered[-1]
        owner = proto.TaskOwner(job_id=JobId.new(), generation=1)
        request = worker_pb2.StartExecutionRequest(
            job=owner,
            pipeline_id=PipelineId.new(),
            program=program_to_proto(program),
            tasks=[
                worker_pb2.TaskPlacement(
                    task=proto.Task(node_id=chain.key, subtask=subtask), worker_id=registered.worker_id
                )
                for chain in program.nodes
                for subtask in range(chain.parallelism)
            ],
        )
        async with connect(registered.rpc_address, RPC) as channel, calling(RPC):
            await WorkerServiceStub(channel).StartExecution(request)
        return owner


@asynccontextmanager
async def worker_of(
    controller: Controller, connector: MemoryConnector, engine: PassingEngine | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    port = await controller.listen()
    settings = CONFIG.section("worker", WorkerSettings).model_copy(
        update={"controller": f"127.0.0.1:{port}", "heartbeat_interval": timedelta(milliseconds=25)}
    )
    serving = asyncio.create_task(
        serve(
            settings,
            rpc=RPC,
            engine=engine or PassingEngine(),
            collector=SubtaskCollector(CollectorRegistry()),
            connectors={"memory": connector},
            environment={},
        )
    )
    try:
        await eventually(lambda: _async(bool(controller.registered) or serving.done()))
        yield serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await controller.close()


@pytest.fixture
def controller() -> Controller:
    return Controller()  # type: ignore[abstract]


async def test_a_job_runs_from_registration_to_the_last_report_and_the_worker_ends(controller: Controller) -> None:
    connector = MemoryConnector({("t", 0): ListSource([SourceBatch(rows(range(10)))])})
    async with worker_of(controller, connector) as serving:
        await eventually(lambda: _async(len(controller.heartbeats) > 0))
        assert not controller.heartbeats[0].HasField("job")
        await controller.start_job(CHAIN)
        async with asyncio.timeout(10):
            await serving
    assert controller.reports == ["started", "finished 10", "ended"]


async def test_a_failure_arrives_with_its_domain_and_hint(controller: Controller) -> None:
    class Refusing(ListSource):
        async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
            raise UserError("bad row at f:1", hint="drop it")

    async with worker_of(controller, MemoryConnector({("t", 0): Refusing([])})) as serving:
        await controller.start_job(CHAIN)
        async with asyncio.timeout(10):
            await serving
    assert controller.reports == ["started", "failed", "ended"]
    (failure,) = controller.failures
    assert (failure.task.node_id, failure.error.message, failure.error.hint) == ("a", "bad row at f:1", "drop it")
    assert (failure.error.domain, failure.error.retry) == ("user", "never")


async def test_metrics_status_and_a_graceful_stop_over_the_wire(controller: Controller) -> None:
    connector = MemoryConnector({("t", 0): ListSource([SourceBatch(rows(range(10)))], ends=False)})
    async with worker_of(controller, connector) as serving:
        owner = await controller.start_job(CHAIN)
        await eventually(
            lambda: _async(any(beat.metrics and beat.metrics[0].rows_out for beat in controller.heartbeats))
        )
        async with connect(controller.registered[0].rpc_address, RPC) as channel:
            worker = WorkerServiceStub(channel)
            status = await worker.GetStatus(worker_pb2.GetStatusRequest())
            assert status.job == owner
            assert [task.state for task in status.tasks] == [worker_pb2.TASK_STATE_RUNNING]
            metrics = await worker.GetMetrics(worker_pb2.GetMetricsRequest())
            assert metrics.subtasks[0].rows_out == 10
            await worker.StopExecution(worker_pb2.StopExecutionRequest(job=owner, mode=worker_pb2.STOP_MODE_GRACEFUL))
        async with asyncio.timeout(10):
            await serving
    assert controller.reports == ["started", "finished 10", "ended"]


async def test_a_worker_that_the_controller_forgot_registers_again_with_its_job(controller: Controller) -> None:
    connector = MemoryConnector({("t", 0): ListSource([], ends=False)})
    async with worker_of(controller, connector):
        owner = await controller.start_job(CHAIN)
        controller.answer = proto.HeartbeatResponse(known=False)
        await eventually(lambda: _async(len(controller.registered) == 2))
        assert controller.registered[1].job == owner


async def test_a_fenced_worker_ends_by_itself_and_reports_nothing_more(controller: Controller) -> None:
    connector = MemoryConnector({("t", 0): ListSource([], ends=False)})
    async with worker_of(controller, connector) as serving:
        await controller.start_job(CHAIN)
        await eventually(lambda: _async(controller.reports == ["started"]))
        controller.answer = proto.HeartbeatResponse(known=True, fenced=True)
        async with asyncio.timeout(10):
            await serving
    assert controller.reports == ["started"]


async def test_a_job_goes_on_and_its_reports_arrive_when_the_controller_was_away(controller: Controller) -> None:
    stop = ListSource([SourceBatch(rows(range(10)))])
    gate = asyncio.Event()

    class Held(ListSource):
        async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
            await gate.wait()
            return await stop.read()

    connector = MemoryConnector({("t", 0): Held([])})
    async with worker_of(controller, connector) as serving:
        await controller.start_job(CHAIN)
        await eventually(lambda: _async(controller.reports == ["started"]))
        assert controller.server is not None
        port = controller.server.port
        await controller.close()
        gate.set()
        await eventually(lambda: _async(("out", 0) in connector.sinks and connector.sinks["out", 0].closed))
        assert not serving.done()
        await controller.listen(port)
        async with asyncio.timeout(20):
            await serving
    assert controller.reports == ["started", "finished 10", "ended"]


async def test_a_standby_that_loses_its_engine_ends_with_the_reason(controller: Controller) -> None:
    engine = PassingEngine()
    async with worker_of(controller, MemoryConnector(), engine) as serving:
        engine.lose(EngineLost("the JVM ended"))
        with pytest.raises(EngineLost):
            async with asyncio.timeout(10):
                await serving


@pytest.mark.parametrize("end", ["signal", "parent"])
async def test_a_process_leaves_nothing_behind_when_it_is_told_to_end_or_its_parent_is_gone(
    end: str, tmp_path: Path, controller: Controller
) -> None:
    port = await controller.listen()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK")},
        "PENSTOCK__WORKER__CONTROLLER": f"127.0.0.1:{port}",
        "PENSTOCK__WORKER__EXIT_WITH_PARENT": "true",
        "PENSTOCK__SPARK__HEAP": "512MiB",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock.worker"),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        cwd=tmp_path,
    )
    try:
        await eventually(lambda: _async(bool(controller.registered)), 90)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        if end == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            assert process.stdin is not None
            process.stdin.close()
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await controller.close()


async def _async(condition: bool) -> bool:
    return condition
