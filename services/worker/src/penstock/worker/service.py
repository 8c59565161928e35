"""The worker as a service: it makes itself known, runs one job and ends."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Final

import structlog

from penstock.common import rpc as common_rpc
from penstock.common.admin import AdminSettings, serve_admin
from penstock.common.arrow import leave_pandas_out
from penstock.common.checkpoint.settings import StorageSettings
from penstock.common.controllers import Controllers
from penstock.common.events import LogEvent
from penstock.common.fencing import Fence
from penstock.common.ids import WorkerId
from penstock.common.proto.worker_pb2_grpc import add_WorkerServiceServicer_to_server
from penstock.common.rpc import RpcSettings
from penstock.common.service import Context
from penstock.connectors.base import Connector
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine, SparkSettings
from penstock.worker.assignment import Job
from penstock.worker.heartbeat import Heartbeat
from penstock.worker.network.network import Network
from penstock.worker.parent import parent_ended
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.reports import ControllerReporter
from penstock.worker.rpc import WorkerRpc
from penstock.worker.settings import WorkerSettings
from penstock.worker.subtask import FragmentEngine
from penstock.worker.worker import Tools, Worker

_ALL_INTERFACES: Final = frozenset({"", "0.0.0.0", "::", "[::]"})

log = structlog.get_logger(__name__)


async def serve(
    settings: WorkerSettings,
    *,
    rpc: RpcSettings,
    engine: FragmentEngine,
    collector: SubtaskCollector,
    connectors: Mapping[str, Connector] = CONNECTORS,
    storage_options: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] = os.environ,
    ready: Callable[[WorkerId], None] = lambda worker: None,
) -> None:
    """Runs one job and returns; `ready` is called when the controller knows the worker. The engine stays open."""
    try:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            fence = Fence()
            controllers = await stack.enter_async_context(Controllers(settings.controller, rpc, fence))
            helpers: list[asyncio.Task[None]] = []

            def reporter_of(job: Job) -> ControllerReporter:
                reporter = ControllerReporter(controllers.stub, rpc, worker.id, job)
                helpers.append(tasks.create_task(reporter.run(), name="reports"))
                return reporter

            id = WorkerId(settings.id) if settings.id else WorkerId.new()
            network = await Network.open(
                id, host=settings.host, port=settings.data_port, rpc=rpc, settings=settings.network
            )
            stack.push_async_callback(network.close)
            tools = Tools(
                engine,
                connectors,
                environment,
                settings.pace,
                settings.updating_ttl_ms,
                settings.budget,
                storage_options,
                network,
            )
            worker = Worker(id, tools, reporter_of)
            stack.enter_context(collector.showing(worker, fence))
            server = await common_rpc.serve(
                lambda server: add_WorkerServiceServicer_to_server(WorkerRpc(worker), server),
                host=settings.host,
                port=settings.rpc_port,
                settings=rpc,
                fence=fence,
            )
            stack.push_async_callback(server.close)
            heartbeat = Heartbeat(
                worker,
                controllers.stub,
                rpc,
                node_id=settings.node_id,
                rpc_address=f"{_advertised_host(settings)}:{server.port}",
                data_address=f"{_advertised_host(settings)}:{network.port}",
                interval_seconds=settings.heartbeat_interval.total_seconds(),
            )
            helpers.append(tasks.create_task(_watch_standby(worker, engine), name="engine"))
            await heartbeat.register()
            helpers.append(tasks.create_task(heartbeat.run(), name="heartbeat"))
            log.info(LogEvent.WORKER_READY, worker=id, port=server.port)
            ready(id)
            await worker.run()
            for helper in helpers:
                helper.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def main(context: Context) -> None:
    """A worker with an engine of its own, as a process."""
    leave_pandas_out()
    settings = context.config.section("worker", WorkerSettings)
    serving = asyncio.create_task(_serve_process(context, settings), name="worker")
    waiting = {serving}
    if settings.exit_with_parent:
        waiting.add(asyncio.create_task(parent_ended(), name="parent"))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            log.warning(LogEvent.WORKER_ORPHANED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if not serving.cancelled():
        serving.result()


async def _serve_process(context: Context, settings: WorkerSettings) -> None:
    config = context.config
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(await Engine.start(config.section("spark", SparkSettings)))
        admin = await serve_admin(
            context.name,
            host=config.section("admin", AdminSettings).host,
            port=settings.admin_port,
            config=config,
            registry=context.registry,
            checks={"engine": engine.status},
        )
        stack.push_async_callback(admin.close)
        collector = SubtaskCollector(context.registry)
        await serve(
            settings,
            rpc=config.section("rpc", RpcSettings),
            engine=engine,
            collector=collector,
            storage_options=config.section("storage", StorageSettings).options,
        )


async def _watch_standby(worker: Worker, engine: FragmentEngine) -> None:
    """A standby without an engine is of no use; a job's end is the execution's to report."""
    error = await engine.ended()
    if worker.job is None:
        raise error


def _advertised_host(settings: WorkerSettings) -> str:
    if settings.advertise:
        return settings.advertise
    host = socket.gethostname() if settings.host in _ALL_INTERFACES else settings.host
    return f"[{host}]" if ":" in host.strip("[]") and not host.startswith("[") else host
