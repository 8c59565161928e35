"""The services that the api asks: the compiler, and the controller for what only a running job knows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, cast

from penstock.api.http_errors import InvalidQuery, InvalidUdf
from penstock.api.schemas import Diagnostic, Severity, Span
from penstock.common import diagnostics
from penstock.common.controllers import Controllers
from penstock.common.diagnostics import diagnostic_from_proto
from penstock.common.errors import InternalError, PeerUnavailable
from penstock.common.ids import JobId
from penstock.common.program import Program
from penstock.common.program_proto import program_from_proto
from penstock.common.proto import compiler_pb2 as compiler
from penstock.common.proto import controller_pb2 as controller
from penstock.common.proto.compiler_pb2_grpc import CompilerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query's program, as a value and as it is stored, with the compiler's warnings."""

    program: Program
    encoded: bytes
    warnings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Validated:
    """What the compiler says of a query; there is no program when a diagnostic is an error."""

    program: Program | None
    diagnostics: tuple[Diagnostic, ...]


class Compiler:
    """The compiler, over gRPC."""

    def __init__(self, address: str, settings: RpcSettings, compile_timeout: timedelta) -> None:
        self._address = address
        self._settings = settings
        self._timeout = compile_timeout
        self._channel = connect(address, settings)
        self._stub = CompilerServiceStub(self._channel)

    async def compile(self, query: str, udfs: Sequence[compiler.BuiltUdf], *, preview: bool) -> Compiled:
        """A query's program; raises InvalidQuery."""
        request = compiler.CompileQueryRequest(query=query, preview=preview, udfs=udfs)
        async with self._calling():
            response = await self._stub.CompileQuery(request)
        found = _diagnostics(response.diagnostics)
        if any(one.severity is Severity.ERROR for one in found):
            raise InvalidQuery(found)
        if not response.HasField("program"):
            raise InternalError("the compiler answered with neither a program nor an error")
        encoded = response.program.SerializeToString(deterministic=True)
        return Compiled(program_from_proto(response.program), encoded, found)

    async def validate(self, query: str, udfs: Sequence[compiler.BuiltUdf]) -> Validated:
        """What the compiler says of a query."""
        async with self._calling():
            response = await self._stub.ValidateQuery(compiler.ValidateQueryRequest(query=query, udfs=udfs))
        program = program_from_proto(response.program) if response.HasField("program") else None
        return Validated(program, _diagnostics(response.diagnostics))

    async def build_udf(self, source: str, name: str | None) -> compiler.BuiltUdf:
        """A Python function whose artifact is stored; raises InvalidUdf."""
        built, found = await self._built(compiler.BuildUdfRequest(source=source, name=name or ""))
        if built is None:
            raise InvalidUdf(found, name)
        return built

    async def validate_udf(
        self, source: str, name: str | None
    ) -> tuple[compiler.BuiltUdf | None, tuple[Diagnostic, ...]]:
        """What the compiler says of a Python function."""
        return await self._built(compiler.BuildUdfRequest(source=source, name=name or "", validate_only=True))

    async def _built(
        self, request: compiler.BuildUdfRequest
    ) -> tuple[compiler.BuiltUdf | None, tuple[Diagnostic, ...]]:
        async with self._calling():
            response = await self._stub.BuildUdf(request)
        return response.udf if response.HasField("udf") else None, _diagnostics(response.diagnostics)

    async def close(self) -> None:
        await self._channel.close(None)

    @asynccontextmanager
    async def _calling(self) -> AsyncIterator[None]:
        with _naming("compiler", self._address):
            async with calling(self._settings, within=self._timeout):
                yield


class Controller:
    """The controller that leads, over gRPC."""

    def __init__(self, addresses: str, settings: RpcSettings) -> None:
        self._addresses = addresses
        self._settings = settings
        self._controllers = Controllers(addresses, settings)
        self._stub = self._controllers.stub

    async def metrics(self, job: JobId) -> controller.JobMetricsResponse:
        """A job's figures; raises NotFound when the controller runs no such job."""
        with _naming("controller", self._addresses):
            async with calling(self._settings):
                return await self._stub.JobMetrics(controller.JobMetricsRequest(job_id=job))

    async def output(self, job: JobId) -> AsyncGenerator[controller.OutputData, None]:
        """The preview rows of a job until it ends; closing the iterator ends the call."""
        rows = cast(Any, self._stub.SubscribeToOutput(controller.SubscribeToOutputRequest(job_id=job)))
        with _naming("controller", self._addresses):
            async with aclosing(rows):
                async for data in rows:
                    yield data

    async def close(self) -> None:
        await self._controllers.close()


@contextmanager
def _naming(service: str, address: str) -> Iterator[None]:
    """Says which service it is that cannot be reached."""
    try:
        yield
    except PeerUnavailable as error:
        hint = f"is the {service} running, and is api.{service} right?"
        raise PeerUnavailable(f"the {service} at {address} cannot be reached: {error.message}", hint=hint) from error


def _diagnostics(messages: Iterable[compiler.Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(_diagnostic(diagnostic_from_proto(message)) for message in messages)


def _diagnostic(found: diagnostics.Diagnostic) -> Diagnostic:
    span = found.span
    return Diagnostic(
        severity=Severity(found.severity.name.lower()),
        code=found.code,
        message=found.message,
        hint=found.hint,
        span=None if span is None else Span(**asdict(span)),
    )
