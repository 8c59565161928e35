"""The controller as a service: its RPCs, its admin pages, and its terms as the leader of several."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from penstock.common import service
from penstock.common.admin import AdminSettings, serve_admin
from penstock.common.bus import Bus
from penstock.common.checkpoint.settings import CheckpointSettings
from penstock.common.database import Pool
from penstock.common.errors import ExternalError, SettingsError
from penstock.common.proto.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from penstock.common.rpc import serve as serve_rpc
from penstock.common.stores import open_stores
from penstock.controller.election import Election
from penstock.controller.lease import PostgresLease
from penstock.controller.metrics import ControllerMetrics, PresentMetrics
from penstock.controller.rpc import ControllerRpc
from penstock.controller.schedulers.embedded import WorkerFactory
from penstock.controller.settings import ControllerSettings
from penstock.controller.term import Surroundings
from penstock.controller.terms import Terms

_ALL_INTERFACES: Final = frozenset({"0.0.0.0", "::", "[::]"})


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a controller that is ready can be reached."""

    rpc_port: int
    admin_port: int


async def run(process: service.Context) -> None:
    """The controller as a process of its own."""
    if not process.config.section("checkpoints", CheckpointSettings).url:
        hint = "name a folder or a bucket that the controller and all workers reach; `penstock up` has one of its own"
        raise SettingsError("checkpoints.url is not set", hint=hint)
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
    checkpoint_folder: Path | None = None,
    ready: Callable[[Serving], None] = lambda serving: None,
) -> None:
    """Serve until cancelled; `ready` is told the ports once this controller leads with its jobs loaded, or follows.

    The embedded scheduler starts its workers with `start_worker`. Checkpoints are in `checkpoint_folder` where the
    settings name no place for them; without either, jobs have none. The pool and the bus stay open.
    """
    own_address = _Address(settings)
    around = Surroundings(
        process=process,
        settings=settings,
        pool=pool,
        bus=bus,
        metrics=ControllerMetrics(process.registry),
        address=own_address,
        start_worker=start_worker,
        checkpoint_folder=checkpoint_folder,
    )
    own_id = uuid4().hex
    lease = PostgresLease(pool, timeout=settings.lease)
    election = Election(
        lease, own_id, own_address, lasts=settings.lease, interval=settings.renew_interval, clock=time.monotonic
    )
    terms = Terms(around, election)
    present = PresentMetrics(lambda: terms.present, election)
    process.registry.register(present)
    async with AsyncExitStack() as stack:
        stack.callback(process.registry.unregister, present)
        stack.push_async_callback(lease.close)
        handlers = ControllerRpc(election, lambda: terms.present)
        server = await serve_rpc(
            lambda served: add_ControllerServiceServicer_to_server(handlers, served),
            host=settings.host,
            port=settings.rpc_port,
            settings=around.rpc,
        )
        own_address.port = server.port
        stack.push_async_callback(terms.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        # Before jobs are, which may be waiting for a call.
        stack.push_async_callback(server.close, 0.5)
        group.create_task(election.run(), name="election")
        group.create_task(terms.run(), name="terms")
        await terms.settled()
        admin = await serve_admin(
            "controller",
            host=process.config.section("admin", AdminSettings).host,
            port=settings.admin_port,
            config=process.config,
            registry=process.registry,
            checks={"database": lambda: _check_database(pool)},
            facts=lambda: _facts(election),
        )
        stack.push_async_callback(admin.close)
        ready(Serving(server.port, admin.port))
        await asyncio.Event().wait()


class _Address:
    """Where this controller is reached, once it serves."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self.port = settings.rpc_port

    def __call__(self) -> str:
        host = socket.gethostname() if self._settings.host in _ALL_INTERFACES else self._settings.host
        return self._settings.advertise or f"{host}:{self.port}"


def _facts(election: Election) -> Mapping[str, object]:
    return {
        "role": "leader" if election.leads else "follower",
        "leader": election.leader,
        "generation": election.generation,
        "unsure": election.is_unsure,
    }


async def _check_database(pool: Pool) -> None:
    try:
        await pool.fetchval("SELECT 1")
    except Exception as error:
        raise ExternalError(f"the database does not answer: {type(error).__name__}") from error
