"""The compiler's RPCs: proto to domain and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import grpc.aio
import structlog

from penstock.common.diagnostics import Diagnostic, diagnostic_to_proto
from penstock.common.errors import InternalError, PeerUnavailable
from penstock.common.events import LogEvent
from penstock.common.program_proto import function_from_proto, function_to_proto, program_to_proto
from penstock.common.proto import compiler_pb2 as proto
from penstock.common.proto.compiler_pb2_grpc import CompilerServiceServicer
from penstock.common.quantities import format_duration
from penstock.compiler.compile import Compilation, QueryFunctions, compile_query
from penstock.compiler.created_functions import is_built_in
from penstock.compiler.diagnostics import Problems, refusal
from penstock.compiler.engines import Engines
from penstock.compiler.udfs import BuiltUdf, Udfs

log = structlog.get_logger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]


class CompilerRpc(CompilerServiceServicer):
    """Compiles and validates queries and functions; at most so many at once, each within a time."""

    def __init__(self, engines: Engines, udfs: Udfs, *, within: timedelta, concurrency: int) -> None:
        self._engines = engines
        self._udfs = udfs
        self._within = within
        self._free = asyncio.Semaphore(concurrency)

    async def CompileQuery(self, request: proto.CompileQueryRequest, context: _Context) -> proto.CompileQueryResponse:
        functions = QueryFunctions(self._udfs, _built(request.udfs))
        compilation = await self._compile(request.query, functions, preview=request.preview)
        return proto.CompileQueryResponse(
            program=None if compilation.program is None else program_to_proto(compilation.program),
            diagnostics=map(diagnostic_to_proto, compilation.diagnostics),
        )

    async def ValidateQuery(
        self, request: proto.ValidateQueryRequest, context: _Context
    ) -> proto.ValidateQueryResponse:
        functions = QueryFunctions(self._udfs, _built(request.udfs), store=False)
        compilation = await self._compile(request.query, functions, preview=False)
        return proto.ValidateQueryResponse(
            program=None if compilation.program is None else program_to_proto(compilation.program),
            diagnostics=map(diagnostic_to_proto, compilation.diagnostics),
        )

    async def BuildUdf(self, request: proto.BuildUdfRequest, context: _Context) -> proto.BuildUdfResponse:
        started_at = time.monotonic()
        problems = Problems()
        async with self._free:
            built = await self._build(request, problems)
        if built is not None and not request.validate_only and not built.function.url:
            raise InternalError("the compiler has no storage for functions", hint="set checkpoints.url")
        duration_ms = round((time.monotonic() - started_at) * 1000)
        log.info(LogEvent.UDF_BUILT, duration_ms=duration_ms, accepted=built is not None)
        return _answer(built, problems.diagnostics)

    async def _build(self, request: proto.BuildUdfRequest, problems: Problems) -> BuiltUdf | None:
        with problems.collecting():
            built = await self._udfs.build(request.source, request.name or None, store=False)
            if is_built_in(built.name, await (await self._engines.get()).functions()):
                raise refusal("duplicate", f"there is a function {built.name} already", None, "choose another name")
            if request.validate_only:
                return built
            return await self._udfs.build(request.source, request.name or None)
        return None

    async def GetUdf(self, request: proto.GetUdfRequest, context: _Context) -> proto.GetUdfResponse:
        source, lock = await self._udfs.get(request.hash)
        return proto.GetUdfResponse(source=source, lock=lock)

    async def _compile(self, query: str, functions: QueryFunctions, *, preview: bool) -> Compilation:
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(self._within.total_seconds()), self._free:
                engine = await self._engines.get()
                compilation = await compile_query(query, engine, preview=preview, functions=functions)
        except TimeoutError:
            message = f"the query was not compiled within {format_duration(self._within)}"
            raise PeerUnavailable(message, hint="try again, or raise compiler.compile_timeout") from None
        log.info(
            LogEvent.QUERY_COMPILED,
            duration_ms=round((time.monotonic() - started_at) * 1000),
            accepted=compilation.program is not None,
            diagnostics=len(compilation.diagnostics),
        )
        return compilation


def _built(messages: Iterable[proto.BuiltUdf]) -> tuple[BuiltUdf, ...]:
    return tuple(
        BuiltUdf(function_from_proto(message.function), MappingProxyType(dict(message.options))) for message in messages
    )


def _answer(built: BuiltUdf | None, diagnostics: Sequence[Diagnostic]) -> proto.BuildUdfResponse:
    udf = None
    if built is not None:
        udf = proto.BuiltUdf(function=function_to_proto(built.function), options=dict(built.options))
    return proto.BuildUdfResponse(udf=udf, diagnostics=map(diagnostic_to_proto, diagnostics))
