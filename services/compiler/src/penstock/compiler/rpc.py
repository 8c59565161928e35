"""The compiler's RPCs: proto to domain and back."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import grpc.aio
import structlog

from penstock.common.diagnostics import diagnostic_to_proto
from penstock.common.errors import PeerUnavailable
from penstock.common.events import LogEvent
from penstock.common.program import program_to_proto
from penstock.common.proto import compiler_pb2 as proto
from penstock.common.proto.compiler_pb2_grpc import CompilerServiceServicer
from penstock.common.quantities import format_duration
from penstock.compiler.compile import Compilation, compile_query
from penstock.compiler.engines import Engines

log = structlog.get_logger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]


class CompilerRpc(CompilerServiceServicer):
    """Answers CompileQuery and ValidateQuery; at most so many at once, each within a time."""

    def __init__(self, engines: Engines, *, within: timedelta, concurrency: int) -> None:
        self._engines = engines
        self._within = within
        self._free = asyncio.Semaphore(concurrency)

    async def CompileQuery(self, request: proto.CompileQueryRequest, context: _Context) -> proto.CompileQueryResponse:
        compilation = await self._compile(request.query, preview=request.preview)
        return proto.CompileQueryResponse(
            program=None if compilation.program is None else program_to_proto(compilation.program),
            diagnostics=map(diagnostic_to_proto, compilation.diagnostics),
        )

    async def ValidateQuery(
        self, request: proto.ValidateQueryRequest, context: _Context
    ) -> proto.ValidateQueryResponse:
        compilation = await self._compile(request.query, preview=False)
        return proto.ValidateQueryResponse(
            program=None if compilation.program is None else program_to_proto(compilation.program),
            diagnostics=map(diagnostic_to_proto, compilation.diagnostics),
        )

    async def _compile(self, query: str, *, preview: bool) -> Compilation:
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(self._within.total_seconds()), self._free:
                compilation = await compile_query(query, await self._engines.get(), preview=preview)
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
