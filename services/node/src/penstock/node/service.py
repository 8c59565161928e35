"""The node as a service: its RPC, its workers, its heartbeats and its admin pages."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from prometheus_client import Gauge

from penstock.common import service
from penstock.common.admin import AdminSettings, serve_admin
from penstock.common.controllers import Controllers
from penstock.common.fencing import Fence
from penstock.common.ids import NodeId, WorkerId
from penstock.common.proto.node_pb2_grpc import add_NodeServiceServicer_to_server
from penstock.common.rpc import RpcSettings
from penstock.common.rpc import serve as serve_rpc
from penstock.node.heartbeat import Heartbeat
from penstock.node.identity import node_identity
from penstock.node.process import WorkerProcess
from penstock.node.rpc import NodeRpc, RpcController
from penstock.node.settings import NodeSettings
from penstock.node.supervisor import Spawn, StandbyPolicy, Supervisor


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a node that is ready can be reached."""

    node_id: NodeId
    rpc_port: int
    admin_port: int


async def run(process: service.Context) -> None:
    """The node as a process of its own."""
    await serve(process, process.config.section("node", NodeSettings))


async def serve(
    process: service.Context, settings: NodeSettings, *, ready: Callable[[Serving], None] = lambda serving: None
) -> None:
    """Serve until cancelled, which ends all workers; `ready` is told the ports once RPCs are taken. That the
    controller is away at the time does not matter."""
    rpc_settings = process.config.section("rpc", RpcSettings)
    async with AsyncExitStack() as stack:
        node_id = stack.enter_context(node_identity(settings.state_dir))
        supervisor = Supervisor(
            _spawner(settings, node_id),
            slots=settings.slot_count,
            standby=StandbyPolicy(settings.standby_workers, settings.standby_backoff, settings.standby_backoff_max),
            stop_timeout=settings.stop_timeout,
            clock=time.monotonic,
        )
        stack.push_async_callback(supervisor.close)
        fence = Fence()
        stack.callback(_measure(process, supervisor, fence))
        handlers = NodeRpc(supervisor)
        server = await serve_rpc(
            lambda served: add_NodeServiceServicer_to_server(handlers, served),
            host=settings.host,
            port=settings.rpc_port,
            settings=rpc_settings,
            fence=fence,
        )
        stack.push_async_callback(server.close, 0.5)
        controllers = await stack.enter_async_context(Controllers(settings.controller, rpc_settings, fence))
        heartbeat = Heartbeat(
            RpcController(controllers.stub, rpc_settings),
            supervisor,
            node=node_id,
            rpc_address=f"{settings.advertised_host}:{server.port}",
            slots=settings.slot_count,
            interval=settings.heartbeat_interval,
        )
        admin = await serve_admin(
            "node",
            host=process.config.section("admin", AdminSettings).host,
            port=settings.admin_port,
            config=process.config,
            registry=process.registry,
            checks={"controller": heartbeat.check},
        )
        stack.push_async_callback(admin.close)
        async with asyncio.TaskGroup() as group:
            group.create_task(heartbeat.run(), name="heartbeat")
            group.create_task(supervisor.keep_standby(), name="standby")
            ready(Serving(node_id, server.port, admin.port))


def _spawner(settings: NodeSettings, node_id: NodeId) -> Spawn:
    command = shlex.split(settings.worker_command) or [sys.executable, "-m", "penstock.worker"]

    async def spawn(worker: WorkerId) -> WorkerProcess:
        environment = {
            **os.environ,
            "PENSTOCK__WORKER__ID": worker,
            "PENSTOCK__WORKER__NODE_ID": node_id,
            "PENSTOCK__WORKER__CONTROLLER": settings.controller,
            "PENSTOCK__WORKER__HOST": settings.host,
            "PENSTOCK__WORKER__ADVERTISE": settings.advertise,
            "PENSTOCK__WORKER__EXIT_WITH_PARENT": "true",
        }
        return await WorkerProcess.start(worker, command, environment)

    return spawn


def _measure(process: service.Context, supervisor: Supervisor, fence: Fence) -> Callable[[], None]:
    """The node's figures for Prometheus; returns how to take them away again."""
    slots = Gauge("penstock_node_slots", "Slots of the node", registry=process.registry)
    slots.set_function(lambda: supervisor.slots.total)
    used = Gauge("penstock_node_slots_used", "Slots that workers have", registry=process.registry)
    used.set_function(lambda: supervisor.slots.used)
    workers = Gauge("penstock_node_workers", "Workers that are alive", registry=process.registry)
    workers.set_function(lambda: len(supervisor.workers))
    refused = Gauge("penstock_node_commands_refused", "Commands of deposed controllers", registry=process.registry)
    refused.set_function(lambda: fence.refused)

    def forget() -> None:
        for gauge in (slots, used, workers, refused):
            process.registry.unregister(gauge)

    return forget
