"""A compiler and a controller of a few lines, which speak the real protocol, and savepoints as the controller makes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pyarrow as pa
from prometheus_client import CollectorRegistry

from penstock.api.schemas import Savepoint
from penstock.common import service
from penstock.common.checkpoint.matching import derive_fingerprint
from penstock.common.checkpoint.metadata import write_metadata, write_operator
from penstock.common.checkpoint.paths import SnapshotPath, checkpoint_path, savepoint_path, table_path
from penstock.common.config import load_config
from penstock.common.database import Pool
from penstock.common.errors import NotFound
from penstock.common.ids import Epoch
from penstock.common.program import (
    ArrowValue,
    ConnectorSink,
    ConnectorSource,
    Function,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    Program,
    ProgramSettings,
)
from penstock.common.program_proto import function_to_proto, program_to_proto
from penstock.common.proto import compiler_pb2 as compiler
from penstock.common.proto import controller_pb2 as controller
from penstock.common.proto.checkpoint_pb2 import (
    CheckpointMetadata,
    OperatorMetadata,
    StateFile,
    SubtaskState,
    TableState,
)
from penstock.common.proto.compiler_pb2_grpc import CompilerServiceServicer
from penstock.common.proto.controller_pb2_grpc import ControllerServiceServicer
from penstock.common.storage import Storage
from penstock.common.telemetry import Tracing
from penstock.common.udfs import Shape, Signature, Style

SCHEMA = pa.schema([pa.field("counter", pa.int64(), nullable=False)])


def sample_program(settings: ProgramSettings | None = None) -> Program:
    """A source, a filter and a preview in one chain."""
    source = ConnectorSource(
        "kafka",
        "events",
        {"topic": "events", "sasl_password": "{{ KAFKA_PASSWORD }}", "sasl_token": "written-out"},
        {},
    )
    operators = (
        Operator(OperatorKey("source_events"), "events", source, SCHEMA),
        Operator(OperatorKey("value_1"), "filter", ArrowValue("SELECT counter FROM input"), SCHEMA),
        Operator(OperatorKey("sink_preview"), "preview", ConnectorSink("preview", "preview", {}, SCHEMA), None),
    )
    node = Node(NodeKey("node_1"), "events -> filter -> preview", operators)
    return Program((node,), (), settings or ProgramSettings())


class FakeCompiler(CompilerServiceServicer):
    """Answers with what it was given; keeps the requests."""

    def __init__(self) -> None:
        self.program = sample_program()
        self.diagnostics: list[compiler.Diagnostic] = []
        self.requests: list[compiler.CompileQueryRequest | compiler.ValidateQueryRequest] = []
        self.builds: list[compiler.BuildUdfRequest] = []
        self.udf_diagnostics: list[compiler.Diagnostic] = []

    async def CompileQuery(
        self, request: compiler.CompileQueryRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> compiler.CompileQueryResponse:
        self.requests.append(request)
        return compiler.CompileQueryResponse(program=self._program(), diagnostics=self.diagnostics)

    async def ValidateQuery(
        self, request: compiler.ValidateQueryRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> compiler.ValidateQueryResponse:
        self.requests.append(request)
        return compiler.ValidateQueryResponse(program=self._program(), diagnostics=self.diagnostics)

    async def BuildUdf(
        self, request: compiler.BuildUdfRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> compiler.BuildUdfResponse:
        """Any source is a function of a number, called as the request says."""
        self.builds.append(request)
        if self.udf_diagnostics:
            return compiler.BuildUdfResponse(diagnostics=self.udf_diagnostics)
        parameters = pa.schema([pa.field("value", pa.int64(), nullable=False)])
        signature = Signature(request.name or "doubled", Shape.SCALAR, Style.PLAIN, parameters, pa.int64())
        digest = hashlib.sha256(request.source.encode()).hexdigest()
        function = Function(f"{signature.name}__{digest[:12]}", signature, digest, f"memory:///udfs/{digest}")
        return compiler.BuildUdfResponse(udf=compiler.BuiltUdf(function=function_to_proto(function)))

    def _program(self) -> Any:
        refused = any(one.severity == compiler.SEVERITY_ERROR for one in self.diagnostics)
        return None if refused else program_to_proto(self.program)


class FakeController(ControllerServiceServicer):
    """Streams what is put into `output`, until None; counts the streams that were left."""

    def __init__(self) -> None:
        self.output: asyncio.Queue[controller.OutputData | None] = asyncio.Queue()
        self.metrics: controller.JobMetricsResponse | None = None
        self.left = 0

    async def SubscribeToOutput(
        self, request: controller.SubscribeToOutputRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[controller.OutputData]:
        try:
            while (data := await self.output.get()) is not None:
                yield data
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def JobMetrics(
        self, request: controller.JobMetricsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> controller.JobMetricsResponse:
        if self.metrics is None:
            raise NotFound(f"no job {request.job_id} is running")
        return self.metrics


@dataclass(frozen=True, slots=True)
class Savepoints:
    """Makes the savepoints that were asked for, as the controller does."""

    pool: Pool
    storage: Storage

    async def make(
        self, savepoint: Savepoint, program: Program, operators: Collection[str] = ("source_events", "sink_preview")
    ) -> None:
        """Keep 100 bytes of state of each of some operators of a program."""
        path = savepoint_path(savepoint.name)
        folder = self.storage.child(savepoint.job_id)
        saved = [
            await self._keep(folder, path, node.key, operator)
            for node in program.nodes
            for operator in node.operators
            if operator.key in operators
        ]
        metadata = CheckpointMetadata(job_id=savepoint.job_id, epoch=1, finished_at_us=1, operators=saved)
        await write_metadata(folder, path, metadata)
        await self.pool.execute(
            """
            INSERT INTO savepoints (id, job_id, pipeline_id, name, state, epoch, path, bytes)
            VALUES ($1, $2, $3, $4, 'ready', 1, $5, $6)
            """,
            savepoint.id,
            savepoint.job_id,
            savepoint.pipeline_id,
            savepoint.name,
            path,
            100 * len(saved),
        )

    async def _keep(self, folder: Storage, path: SnapshotPath, node: NodeKey, operator: Operator) -> str:
        file = table_path(checkpoint_path(Epoch(1)), operator.key, "t", 0)
        await folder.put(file, bytes(100))
        table = TableState(name="t", files=[StateFile(path=file, bytes=100, parallelism=1)])
        metadata = OperatorMetadata(
            operator_id=operator.key,
            node_id=node,
            parallelism=1,
            subtasks=[SubtaskState(tables=[table])],
            fingerprint=derive_fingerprint(operator),
        )
        return await write_operator(folder, path, metadata)


def api_process() -> service.Context:
    """What the api's process would give it."""
    return service.Context("api", load_config(environment={}), Tracing(None), CollectorRegistry())
