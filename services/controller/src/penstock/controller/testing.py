"""For tests: workers and nodes that speak the real protocol and run nothing, and twins of the ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
import pyarrow as pa
from prometheus_client import CollectorRegistry

from penstock.common import service
from penstock.common.bus import Bus
from penstock.common.config import load_config
from penstock.common.database import Pool
from penstock.common.errors import DatabaseUnavailable, ErrorDomain, ExternalError, PenstockError, RetryHint
from penstock.common.ids import JobId, NodeId, PipelineId, WorkerId
from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.common.program import (
    ConnectorSink,
    ConnectorSource,
    Edge,
    EdgeKind,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    Program,
)
from penstock.common.proto import controller_pb2, node_pb2, worker_pb2
from penstock.common.proto.controller_pb2_grpc import ControllerServiceStub
from penstock.common.proto.error_pb2 import ErrorDetail
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.common.proto.node_pb2_grpc import NodeServiceServicer, add_NodeServiceServicer_to_server
from penstock.common.proto.worker_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server
from penstock.common.rpc import RpcServer, RpcSettings, calling, connect
from penstock.common.rpc import serve as serve_rpc
from penstock.common.telemetry import Tracing
from penstock.controller.lease import LeaderWrites
from penstock.controller.records import Entry, JobConfig, JobStatus, TaskId
from penstock.controller.schedulers.embedded import WorkerFactory
from penstock.controller.service import Serving, serve
from penstock.controller.settings import ControllerSettings
from penstock.controller.store import StoredJob
from penstock.controller.testing_streams import FakeStream, FakeTasks

Context = grpc.aio.ServicerContext[Any, Any]

_SCHEMA = pa.schema([("value", pa.int64())])
_BEAT_SECONDS = 0.05


def quick_settings(**overrides: str) -> ControllerSettings:
    """The defaults, on free ports and with short waits."""
    quick = {
        "rpc_port": "0",
        "admin_port": "0",
        "scheduler": "embedded",
        "lease": "600ms",
        "renew_interval": "100ms",
        "poll_interval": "50ms",
        "tick": "20ms",
        "heartbeat_timeout": "1s",
        "node_timeout": "1s",
        "stop_timeout": "1s",
        "adopt_timeout": "2s",
        "restart_backoff": "10ms",
        "share_after": "500ms",
    }
    environment = {f"PENSTOCK__CONTROLLER__{key.upper()}": value for key, value in {**quick, **overrides}.items()}
    return load_config(environment=environment).section("controller", ControllerSettings)


def rpc_settings() -> RpcSettings:
    return load_config(environment={}).section("rpc", RpcSettings)


def pipeline_program(*, shuffle: bool = False, sink_parallelism: int = 0) -> Program:
    """A source and a sink, each a node of its own."""
    source = Operator(OperatorKey("op_in"), "read", ConnectorSource("impulse", "impulse", {}, {}), _SCHEMA)
    sink = Operator(OperatorKey("op_out"), "write", ConnectorSink("preview", "results", {}, _SCHEMA), None)
    edge = (
        Edge(NodeKey("in"), NodeKey("out"), EdgeKind.SHUFFLE, ("value",))
        if shuffle
        else Edge(NodeKey("in"), NodeKey("out"))
    )
    return Program(
        (Node(NodeKey("in"), "read", (source,)), Node(NodeKey("out"), "write", (sink,), sink_parallelism)), (edge,)
    )


def job_config(job: JobId | None = None, **changes: Any) -> JobConfig:
    fields: dict[str, Any] = {
        "id": job or JobId.new(),
        "pipeline_id": PipelineId.new(),
        "parallelism": 1,
        "stop_mode": StopMode.NONE,
        "restart_nonce": 0,
        "restart_mode": RestartMode.SAFE,
        "preview": False,
        "revision": 1,
        "checkpoint_interval_ms": 10_000,
        "restore_from": None,
        "ignore_state_nonce": 0,
        "allow_fallback": False,
        **changes,
    }
    return JobConfig(**fields)


class MemoryStore:
    """The store's twin; `away` makes it as Postgres is when it is not there."""

    def __init__(self, program: Program | None = None) -> None:
        self.program = program or pipeline_program()
        self.configs: dict[JobId, JobConfig] = {}
        self.statuses: dict[JobId, JobStatus] = {}
        self.entries: list[Entry] = []
        self.away = False

    async def unsettled_jobs(self) -> tuple[int, tuple[StoredJob, ...]]:
        jobs = await self.changed_jobs(0)
        revision = max((job.config.revision for job in jobs), default=0)
        return revision, tuple(job for job in jobs if job.status is None or not job.status.state.is_terminal)

    async def changed_jobs(self, since: int) -> tuple[StoredJob, ...]:
        self._answer()
        configs = sorted(self.configs.values(), key=lambda config: config.revision)
        return tuple(StoredJob(each, self.statuses.get(each.id)) for each in configs if each.revision > since)

    async def deleted_jobs(self, jobs: Collection[JobId]) -> tuple[JobId, ...]:
        self._answer()
        return tuple(job for job in jobs if job not in self.configs)

    async def job_state(self, job: JobId) -> JobState | None:
        self._answer()
        status = self.statuses.get(job)
        return status.state if status else JobState.CREATED if job in self.configs else None

    async def load_program(self, pipeline: PipelineId) -> Program:
        self._answer()
        return self.program

    async def record(self, entries: Sequence[Entry]) -> None:
        self._answer()
        self.entries += entries
        self.statuses.update({entry.job_id: entry.status for entry in entries if entry.status})

    def _answer(self) -> None:
        if self.away:
            raise DatabaseUnavailable("the twin is away")


class FakeWorker:
    """Serves WorkerService, registers, sends heartbeats, and reports what a test says.

    Tasks start at once unless `starts` is off, and end when they are told to unless `obeys` is off. One that is
    detached (`is_detached`) goes on when its scheduler ends it. A job with checkpoints reads `stream`.
    """

    def __init__(self, worker_id: WorkerId, controller: str, *, node_id: NodeId | None = None) -> None:
        self.id = worker_id
        self.node_id = node_id
        self.starts = True
        self.obeys = True
        self.is_detached = False
        self.fenced = False
        self.commits_arrive = True
        self.stops: list[int] = []
        self.checkpoints: list[worker_pb2.CheckpointRequest] = []
        self.commits: list[worker_pb2.CommitRequest] = []
        self.execution: worker_pb2.StartExecutionRequest | None = None
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.stream = FakeStream()
        self.beat_seconds = _BEAT_SECONDS
        self.settings = rpc_settings()
        self._controller = controller
        self._streaming: FakeTasks | None = None
        self._finished: set[TaskId] = set()
        self._sent = 0
        self._beats: asyncio.Task[None] | None = None
        self._works: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._last_words = asyncio.Lock()

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """The tasks that are its own."""
        placed = self.execution.tasks if self.execution else ()
        return tuple(TaskId(NodeKey(p.task.node_id), p.task.subtask) for p in placed if p.worker_id == self.id)

    @property
    def owner(self) -> controller_pb2.TaskOwner | None:
        return self.execution.job if self.execution else None

    async def open(self) -> FakeWorker:
        handlers = _WorkerRpc(self)
        server = await serve_rpc(
            lambda served: add_WorkerServiceServicer_to_server(handlers, served),
            host="127.0.0.1",
            port=0,
            settings=self.settings,
        )
        self._stack.push_async_callback(server.close, 0)
        self._address = f"127.0.0.1:{server.port}"
        channel = await self._stack.enter_async_context(connect(self._controller, self.settings))
        self.stub = ControllerServiceStub(channel)
        self._beats = asyncio.create_task(self._beat(), name=f"fake-{self.id}")
        return self

    async def wait(self) -> None:
        await self.ended.wait()

    async def stop(self, *, force: bool) -> None:
        if not self.is_detached:
            async with self._last_words:
                await self.crash()

    async def crash(self) -> None:
        """Gone without a word."""
        if self.ended.is_set():
            return
        self.ended.set()
        if self._streaming is not None:
            await self._streaming.close()
        for task in (self._beats, *self._works):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait({task})
        await self._stack.aclose()

    async def report_started(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            async with calling(self.settings):
                await self.stub.TaskStarted(
                    controller_pb2.TaskStartedRequest(worker_id=self.id, job=self.owner, task=_task(task))
                )
        self.started.set()

    async def report_finished(self, tasks: Iterable[TaskId], *, rows: int = 0) -> None:
        for task in tasks:
            self._finished.add(task)
            metrics = SubtaskMetrics(node_id=task.node, subtask=task.subtask, rows_out=rows)
            async with self._last_words, calling(self.settings):
                await self.stub.TaskFinished(
                    controller_pb2.TaskFinishedRequest(
                        worker_id=self.id, job=self.owner, task=_task(task), metrics=metrics
                    )
                )

    async def report_failed(self, task: TaskId, error: PenstockError) -> None:
        detail = ErrorDetail(
            kind=type(error).__name__,
            message=error.message,
            hint=error.hint or "",
            domain=error.domain,
            retry=error.retry,
        )
        # Whoever hears this may end the worker before it has heard the answer.
        async with self._last_words, calling(self.settings):
            await self.stub.TaskFailed(
                controller_pb2.TaskFailedRequest(worker_id=self.id, job=self.owner, task=_task(task), error=detail)
            )

    async def send_rows(self, lines: bytes, rows: int) -> None:
        data = controller_pb2.OutputData(table="results", subtask=0, rows=rows, lines=lines)
        self._sent += 1
        async with calling(self.settings):
            await self.stub.SendSinkData(
                controller_pb2.SendSinkDataRequest(worker_id=self.id, job=self.owner, data=data, sequence=self._sent)
            )

    async def finish(self, *, rows: int = 0) -> None:
        """Every task ends well, and so does the worker."""
        await self.report_finished(self.tasks, rows=rows)
        await self.end_well()

    async def end_well(self) -> None:
        async with self._last_words, calling(self.settings):
            await self.stub.WorkerFinished(controller_pb2.WorkerFinishedRequest(worker_id=self.id, job=self.owner))
        self._spawn(self.crash())

    def take(self, execution: worker_pb2.StartExecutionRequest) -> None:
        self.execution = execution
        if execution.HasField("checkpoints"):
            self._streaming = FakeTasks(self, self.stream, execution)
        if self.starts:
            self._spawn(self._start())

    async def _start(self) -> None:
        if self._streaming is not None:
            try:
                await self._streaming.start()
            except PenstockError as error:
                await self.report_failed(self.tasks[0], error)
                return
        await self.report_started(self.tasks)

    def checkpoint(self, request: worker_pb2.CheckpointRequest) -> None:
        self.checkpoints.append(request)
        if self._streaming is not None and self.obeys:
            self._streaming.checkpoint(request)

    def commit(self, request: worker_pb2.CommitRequest) -> None:
        self.commits.append(request)
        if self._streaming is not None and self.commits_arrive:
            self._streaming.commit(request)

    def obey(self, mode: int) -> None:
        self.stops.append(mode)
        if not self.obeys:
            return
        if self._streaming is not None and mode == worker_pb2.STOP_MODE_GRACEFUL:
            self._streaming.end_sources()
        else:
            self._spawn(self.finish())

    def status(self) -> worker_pb2.GetStatusResponse:
        def state(task: TaskId) -> worker_pb2.TaskState.ValueType:
            return worker_pb2.TASK_STATE_FINISHED if task in self._finished else worker_pb2.TASK_STATE_RUNNING

        tasks = [worker_pb2.TaskStatus(task=_task(task), state=state(task)) for task in self.tasks]
        return worker_pb2.GetStatusResponse(worker_id=self.id, job=self.owner, tasks=tasks)

    async def _register(self) -> None:
        request = controller_pb2.RegisterWorkerRequest(
            worker_id=self.id,
            node_id=self.node_id or "",
            rpc_address=self._address,
            data_address=self._address,
            job=self.owner,
        )
        async with calling(self.settings):
            await self.stub.RegisterWorker(request)

    async def _beat(self) -> None:
        registered = False
        while True:
            # The controller may be away, and a test may want just that.
            with suppress(PenstockError):
                if not registered:
                    await self._register()
                    registered = True
                    # A controller that does not know the worker does not know this either.
                    if self._streaming is not None:
                        self._streaming.report_all_ended()
                async with calling(self.settings):
                    answer = await self.stub.Heartbeat(
                        controller_pb2.HeartbeatRequest(worker_id=self.id, job=self.owner)
                    )
                registered = answer.known
                if answer.fenced:
                    self.fenced = True
                    self._spawn(self.crash())
                    return
            await asyncio.sleep(self.beat_seconds)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)


class _WorkerRpc(WorkerServiceServicer):
    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker

    async def StartExecution(
        self, request: worker_pb2.StartExecutionRequest, context: Context
    ) -> worker_pb2.StartExecutionResponse:
        self._worker.take(request)
        return worker_pb2.StartExecutionResponse()

    async def Checkpoint(
        self, request: worker_pb2.CheckpointRequest, context: Context
    ) -> worker_pb2.CheckpointResponse:
        self._worker.checkpoint(request)
        return worker_pb2.CheckpointResponse()

    async def Commit(self, request: worker_pb2.CommitRequest, context: Context) -> worker_pb2.CommitResponse:
        self._worker.commit(request)
        return worker_pb2.CommitResponse()

    async def StopExecution(
        self, request: worker_pb2.StopExecutionRequest, context: Context
    ) -> worker_pb2.StopExecutionResponse:
        self._worker.obey(request.mode)
        return worker_pb2.StopExecutionResponse()

    async def GetStatus(self, request: worker_pb2.GetStatusRequest, context: Context) -> worker_pb2.GetStatusResponse:
        return self._worker.status()

    async def GetMetrics(
        self, request: worker_pb2.GetMetricsRequest, context: Context
    ) -> worker_pb2.GetMetricsResponse:
        return worker_pb2.GetMetricsResponse()


class FakeWorkers:
    """The factory of the embedded scheduler: remembers whom it made. `prepare` changes each before it serves."""

    def __init__(self) -> None:
        self.all: list[FakeWorker] = []
        self.starts = True
        self.obeys = True
        self.are_detached = False
        self.stream = FakeStream()
        self.beat_seconds = _BEAT_SECONDS

    @property
    def alive(self) -> list[FakeWorker]:
        return [worker for worker in self.all if not worker.ended.is_set()]

    async def __call__(self, worker_id: WorkerId, controller: str) -> FakeWorker:
        return await self.make(worker_id, controller)

    async def make(self, worker_id: WorkerId, controller: str, node_id: NodeId | None = None) -> FakeWorker:
        worker = FakeWorker(worker_id, controller, node_id=node_id)
        worker.starts, worker.obeys, worker.is_detached = self.starts, self.obeys, self.are_detached
        worker.stream, worker.beat_seconds = self.stream, self.beat_seconds
        self.all.append(worker)
        return await worker.open()

    async def close(self) -> None:
        for worker in self.all:
            await worker.crash()


class FakeNode(NodeServiceServicer):
    """Serves NodeService with fake workers in this process."""

    def __init__(self, controller: str, slots: int, workers: FakeWorkers) -> None:
        self.id = NodeId.new()
        self.slots = slots
        self.workers = workers
        self.owners: dict[WorkerId, tuple[str, int]] = {}
        self.refusals = 0
        self._controller = controller
        self._settings = rpc_settings()
        self._server: RpcServer | None = None
        self._beats: asyncio.Task[None] | None = None

    @property
    def alive(self) -> list[FakeWorker]:
        return [worker for worker in self.workers.alive if worker.id in self.owners]

    @property
    def slots_used(self) -> int:
        return sum(self.owners[each.id][1] for each in self.alive)

    async def open(self) -> FakeNode:
        self._server = await serve_rpc(
            lambda served: add_NodeServiceServicer_to_server(self, served),
            host="127.0.0.1",
            port=0,
            settings=self._settings,
        )
        self._beats = asyncio.create_task(self._beat(), name=f"fake-{self.id}")
        return self

    async def close(self) -> None:
        """Gone, with all its workers."""
        for worker in self.alive:
            await worker.crash()
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait({self._beats})
        if self._server is not None:
            await self._server.close(0)

    async def StartWorker(self, request: node_pb2.StartWorkerRequest, context: Context) -> node_pb2.StartWorkerResponse:
        if request.slots > self.slots - self.slots_used:
            self.refusals += 1
            raise ExternalError("too few slots are free")
        worker_id = WorkerId.new()
        self.owners[worker_id] = (request.owner, request.slots)
        worker = await self.workers.make(worker_id, self._controller, self.id)
        return node_pb2.StartWorkerResponse(worker_id=worker.id)

    async def StopWorker(self, request: node_pb2.StopWorkerRequest, context: Context) -> node_pb2.StopWorkerResponse:
        for worker in self.alive:
            if worker.id == request.worker_id:
                await worker.stop(force=request.force)
        return node_pb2.StopWorkerResponse()

    async def GetWorkers(self, request: node_pb2.GetWorkersRequest, context: Context) -> node_pb2.GetWorkersResponse:
        return node_pb2.GetWorkersResponse(
            workers=[
                node_pb2.WorkerInfo(worker_id=each.id, owner=self.owners[each.id][0], slots=self.owners[each.id][1])
                for each in self.alive
            ]
        )

    async def _beat(self) -> None:
        assert self._server is not None
        async with connect(self._controller, self._settings) as channel:
            stub, known = ControllerServiceStub(channel), False
            while True:
                with suppress(PenstockError):
                    async with calling(self._settings):
                        if not known:
                            await stub.RegisterNode(
                                controller_pb2.RegisterNodeRequest(
                                    node_id=self.id, rpc_address=f"127.0.0.1:{self._server.port}", slots=self.slots
                                )
                            )
                        answer = await stub.HeartbeatNode(
                            controller_pb2.HeartbeatNodeRequest(
                                node_id=self.id,
                                slots_used=self.slots_used,
                                worker_ids=[each.id for each in self.alive],
                            )
                        )
                    known = answer.known
                await asyncio.sleep(self.workers.beat_seconds)


@asynccontextmanager
async def running_controller(
    pool: Pool,
    bus: Bus,
    settings: ControllerSettings,
    start_worker: WorkerFactory | None = None,
    *,
    checkpoint_folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Serving]:
    """A controller in this process, while the block lasts; with a folder, its jobs have checkpoints."""
    ready: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
    config = load_config(environment=environment or {})
    serving = asyncio.create_task(
        serve(
            service.Context("controller", config, Tracing(None), CollectorRegistry()),
            settings,
            pool=pool,
            bus=bus,
            start_worker=start_worker,
            checkpoint_folder=checkpoint_folder,
            ready=ready.set_result,
        )
    )
    try:
        serving.add_done_callback(lambda task: ready.done() or ready.cancel())
        yield await ready
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


def leader_writes(pool: Pool) -> LeaderWrites:
    """The transactions of a leader before there ever was one."""
    return LeaderWrites(pool, 0, lambda: None)


def wall_clock() -> datetime:
    return datetime.now(UTC)


class TransientFault(PenstockError):
    """What a worker reports when another attempt may help."""

    domain = ErrorDomain.EXTERNAL
    retry = RetryHint.BACKOFF


def _task(task: TaskId) -> controller_pb2.Task:
    return controller_pb2.Task(node_id=task.node, subtask=task.subtask)
