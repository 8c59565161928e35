"""The controller as a service: its RPCs, its loops and its admin pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.common import service
from penstock.common.admin import AdminSettings, serve_admin
from penstock.common.bus import Bus
from penstock.common.database import Pool
from penstock.common.errors import ExternalError, SettingsError
from penstock.common.proto.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from penstock.common.rpc import RpcSettings
from penstock.common.rpc import serve as serve_rpc
from penstock.common.stores import open_stores
from penstock.controller.announcements import announcer
from penstock.controller.jobs import Jobs
from penstock.controller.journal import WriteJournal
from penstock.controller.metrics import ControllerMetrics, MetricsStore, PresentMetrics
from penstock.controller.mirror import Mirror
from penstock.controller.output import Outputs
from penstock.controller.registry import Registry
from penstock.controller.rpc import ControllerRpc
from penstock.controller.runner import Ports
from penstock.controller.schedulers.base import Scheduler
from penstock.controller.schedulers.embedded import EmbeddedScheduler, WorkerFactory
from penstock.controller.schedulers.node import NodeScheduler
from penstock.controller.schedulers.process import process_scheduler
from penstock.controller.settings import ControllerSettings
from penstock.controller.states.machine import Machine
from penstock.controller.store import PostgresStore
from penstock.controller.workers import RpcWorkers

_LAST_WRITES_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a controller that is ready can be reached."""

    rpc_port: int
    admin_port: int


async def run(process: service.Context) -> None:
    """The controller as a process of its own."""
    async with open_stores(process.config) as stores:
        settings = process.config.section("controller", ControllerSettings)
        await serve(process, settings, pool=stores.pool, bus=stores.bus)


async def serve(
    process: service.Context,
    settings: ControllerSettings,
    *,
    pool: Pool,
    bus: Bus,
    start_worker: WorkerFactory | None = None,
    ready: Callable[[Serving], None] = lambda serving: None,
) -> None:
    """Serve until cancelled; `ready` is told the ports once jobs are loaded and RPCs are taken.

    The embedded scheduler starts its workers with `start_worker`. The pool and the bus stay open.
    """
    rpc_settings = process.config.section("rpc", RpcSettings)
    registry = Registry(
        heartbeat_timeout=settings.heartbeat_timeout, node_timeout=settings.node_timeout, clock=time.monotonic
    )
    address = _Address(settings)
    scheduler = _scheduler(settings, registry, rpc_settings, address, start_worker)
    store = PostgresStore(pool)
    journal = WriteJournal(store, announcer(bus))
    machine = Machine(journal, ControllerMetrics(process.registry), _wall_clock)
    ports = Ports(machine, scheduler, registry, store, RpcWorkers(rpc_settings), settings, time.monotonic)
    outputs = Outputs(max_rows=settings.output_rows, max_bytes=settings.output_bytes, kept=settings.kept_outputs)
    jobs = Jobs(store, journal, ports, outputs, MetricsStore(settings.kept_metrics))
    mirror = Mirror(store, registry, jobs.count_tasks, time.monotonic, _wall_clock)
    present = PresentMetrics(lambda: jobs.states, lambda: registry.capacities, lambda: journal.waiting)
    process.registry.register(present)
    async with AsyncExitStack() as stack:
        stack.callback(process.registry.unregister, present)
        loaded = asyncio.Event()
        writing = asyncio.create_task(journal.run(), name="journal")
        stack.push_async_callback(_finish_writing, journal, writing)
        stack.push_async_callback(scheduler.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(_watch(writing), name="journal-watch")
        group.create_task(jobs.run(loaded), name="jobs")
        await loaded.wait()
        handlers = ControllerRpc(jobs, registry)
        server = await serve_rpc(
            lambda served: add_ControllerServiceServicer_to_server(handlers, served),
            host=settings.host,
            port=settings.rpc_port,
            settings=rpc_settings,
        )
        stack.push_async_callback(server.close, 0.5)
        address.port = server.port
        admin = await serve_admin(
            "controller",
            host=process.config.section("admin", AdminSettings).host,
            port=settings.admin_port,
            config=process.config,
            registry=process.registry,
            checks={"database": lambda: _check_database(pool)},
        )
        stack.push_async_callback(admin.close)
        group.create_task(jobs.listen(bus), name="wake-ups")
        group.create_task(jobs.watch_heartbeats(), name="heartbeats")
        group.create_task(mirror.run(), name="mirror")
        group.create_task(bus.ensure_event_stream(), name="event-stream")
        ready(Serving(server.port, admin.port))
        await asyncio.Event().wait()


class _Address:
    """Where workers reach this controller, once it serves."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self.port = settings.rpc_port

    def __call__(self) -> str:
        host = self._settings.host if self._settings.host not in {"0.0.0.0", "::"} else "127.0.0.1"
        return self._settings.advertise or f"{host}:{self.port}"


def _scheduler(
    settings: ControllerSettings,
    registry: Registry,
    rpc_settings: RpcSettings,
    address: Callable[[], str],
    start_worker: WorkerFactory | None,
) -> Scheduler:
    match settings.scheduler:
        case "node":
            return NodeScheduler(registry, rpc_settings)
        case "process":
            return process_scheduler(
                command=settings.worker_command,
                controller=address,
                worker_slots=settings.worker_slots,
                stop_timeout=settings.stop_timeout,
                registry=registry,
            )
        case "embedded":
            if start_worker is None:
                hint = "use `penstock up` or `penstock run`, or set controller.scheduler to process or node"
                raise SettingsError("a controller in a process of its own has no embedded workers", hint=hint)
            return EmbeddedScheduler(
                start_worker, controller=address, worker_slots=settings.worker_slots, registry=registry
            )


async def _finish_writing(journal: WriteJournal, writing: asyncio.Task[None]) -> None:
    """What happened last is written too, unless Postgres is away."""
    try:
        async with asyncio.timeout(_LAST_WRITES_SECONDS):
            await journal.flushed()
    except TimeoutError:
        pass
    finally:
        writing.cancel()
        await asyncio.wait({writing})


async def _watch(writing: asyncio.Task[None]) -> None:
    """Let the service fail when the journal does, and not the other way round."""
    await asyncio.shield(writing)


async def _check_database(pool: Pool) -> None:
    try:
        await pool.fetchval("SELECT 1")
    except Exception as error:
        raise ExternalError(f"the database does not answer: {type(error).__name__}") from error


def _wall_clock() -> datetime:
    return datetime.now(UTC)
