"""The compiler as a service: its RPC, its engine and its admin pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.common import service
from penstock.common.admin import AdminSettings, serve_admin
from penstock.common.arrow import leave_pandas_out
from penstock.common.checkpoint.settings import open_checkpoints
from penstock.common.proto.compiler_pb2_grpc import add_CompilerServiceServicer_to_server
from penstock.common.rpc import RpcSettings
from penstock.common.rpc import serve as serve_rpc
from penstock.compiler.engines import Engines
from penstock.compiler.rpc import CompilerRpc
from penstock.compiler.settings import CompilerSettings
from penstock.compiler.udfs import Udfs
from penstock.spark import Engine, SparkSettings


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a compiler that is ready can be reached."""

    rpc_port: int
    admin_port: int


async def run(process: service.Context) -> None:
    """The compiler as a process of its own."""
    leave_pandas_out()
    await serve(process, process.config.section("compiler", CompilerSettings))


async def serve(
    process: service.Context,
    settings: CompilerSettings,
    *,
    engine: Engine | None = None,
    checkpoint_folder: Path | None = None,
    ready: Callable[[Serving], None] = lambda serving: None,
) -> None:
    """Serve until cancelled; `ready` is told the ports once queries are taken. An engine that is given stays up."""
    engines = Engines(process.config.section("spark", SparkSettings), engine)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engines.close)
        await engines.get()
        udfs = Udfs(open_checkpoints(process.config, checkpoint_folder), settings.udf_limits)
        handlers = CompilerRpc(engines, udfs, within=settings.compile_timeout, concurrency=settings.concurrency)
        server = await serve_rpc(
            lambda served: add_CompilerServiceServicer_to_server(handlers, served),
            host=settings.host,
            port=settings.rpc_port,
            settings=process.config.section("rpc", RpcSettings),
        )
        stack.push_async_callback(server.close)
        admin = await serve_admin(
            "compiler",
            host=process.config.section("admin", AdminSettings).host,
            port=settings.admin_port,
            config=process.config,
            registry=process.registry,
            checks={"engine": engines.check},
        )
        stack.push_async_callback(admin.close)
        ready(Serving(server.port, admin.port))
        await asyncio.get_running_loop().create_future()
