"""The compiler over gRPC: programs, diagnostics, its time limit, and a JVM that dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest
from prometheus_client import CollectorRegistry

from penstock.common import service
from penstock.common.config import load_config
from penstock.common.diagnostics import Severity, diagnostic_from_proto
from penstock.common.errors import PeerUnavailable
from penstock.common.program import ConnectorSink
from penstock.common.program_proto import program_from_proto
from penstock.common.proto import compiler_pb2 as proto
from penstock.common.proto.compiler_pb2_grpc import CompilerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.common.telemetry import Tracing
from penstock.compiler.engines import Engines
from penstock.compiler.service import Serving, serve
from penstock.compiler.settings import CompilerSettings
from penstock.spark import Engine
from penstock.spark.testing import spark_settings

if TYPE_CHECKING:
    from penstock.common.proto.compiler_pb2_grpc import CompilerServiceAsyncStub

QUERY: Final = "CREATE TABLE t WITH (connector = 'impulse'); SELECT counter FROM t;"
CONFIG: Final = load_config(environment={"PENSTOCK__SPARK__MASTER": "local[2]"})
RPC: Final = CONFIG.section("rpc", RpcSettings)


@asynccontextmanager
async def compiler(engine: Engine | None, **changes: object) -> AsyncIterator[CompilerServiceAsyncStub]:
    settings = CONFIG.section("compiler", CompilerSettings).model_copy(
        update={"rpc_port": 0, "admin_port": 0, **changes}
    )
    ready: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
    process = service.Context("compiler", CONFIG, Tracing(None), CollectorRegistry())
    serving = asyncio.create_task(serve(process, settings, engine=engine, ready=ready.set_result))
    await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
    try:
        async with connect(f"127.0.0.1:{(await ready).rpc_port}", RPC) as channel:
            yield CompilerServiceStub(channel)
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


async def compiled(stub: CompilerServiceAsyncStub, query: str, *, preview: bool = False) -> proto.CompileQueryResponse:
    async with calling(RPC, within=timedelta(seconds=200)):
        return await stub.CompileQuery(proto.CompileQueryRequest(query=query, preview=preview))


async def test_query_becomes_a_program(engine: Engine) -> None:
    async with compiler(engine) as stub:
        program = program_from_proto((await compiled(stub, QUERY)).program)
    sink = program.nodes[-1].operators[-1].kind
    assert isinstance(sink, ConnectorSink) and sink.connector == "preview"


async def test_wrong_query_gets_diagnostics_with_their_places(engine: Engine) -> None:
    async with compiler(engine) as stub:
        response = await compiled(stub, "CREATE TABLE t WITH (connector = 'impulse');\nSELECT countr FROM t;")
        validated = await stub.ValidateQuery(proto.ValidateQueryRequest(query="SELECT 1"))
    assert not response.HasField("program") and not validated.HasField("program")
    (found,) = map(diagnostic_from_proto, response.diagnostics)
    assert found.severity is Severity.ERROR
    assert found.code == "unknown_column" and found.hint == "did you mean counter?"
    assert found.span is not None and (found.span.line, found.span.column, found.span.end_column) == (2, 8, 13)


async def test_valid_query_is_shown_as_its_program(engine: Engine) -> None:
    async with compiler(engine) as stub:
        response = await stub.ValidateQuery(proto.ValidateQueryRequest(query=QUERY))
    assert response.HasField("program") and not response.diagnostics


async def test_queries_are_compiled_side_by_side(engine: Engine) -> None:
    async with compiler(engine, concurrency=2) as stub:
        responses = await asyncio.gather(*(compiled(stub, f"{QUERY} -- {number}") for number in range(6)))
    assert all(response.HasField("program") for response in responses)


async def test_query_that_takes_too_long_is_given_up(engine: Engine) -> None:
    columns = ", ".join(f"counter * {number} AS column_{number}" for number in range(500))
    async with compiler(engine, compile_timeout=timedelta(milliseconds=1)) as stub:
        with pytest.raises(PeerUnavailable, match="not compiled within 1ms"):
            await compiled(stub, f"CREATE TABLE t WITH (connector = 'impulse'); SELECT {columns} FROM t;")


async def test_start_of_an_engine_goes_on_when_its_first_query_gives_up() -> None:
    engines = Engines(spark_settings())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await engines.get()
    one, other = await asyncio.gather(engines.get(), engines.get())
    assert one is other
    await engines.close()
    await one.ended()


async def test_engine_that_is_given_stays_up(engine: Engine) -> None:
    async with compiler(engine):
        pass
    await engine.status()


async def test_jvm_that_dies_is_replaced_for_the_next_query() -> None:
    patience = timedelta(seconds=200)
    async with await Engine.start(spark_settings()) as doomed, compiler(doomed, compile_timeout=patience) as stub:
        assert (await compiled(stub, QUERY)).HasField("program")
        os.kill(doomed.pid, signal.SIGKILL)
        await doomed.ended()
        assert (await compiled(stub, QUERY)).HasField("program")
