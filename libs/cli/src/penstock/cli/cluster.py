"""The embedded cluster: Postgres, NATS and all services for one machine, with this process as their parent."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.cli.engines import SharedEngine
from penstock.cli.hosting import Hosted
from penstock.cli.servers import start_servers
from penstock.common.config import Config
from penstock.common.telemetry import Tracing

if TYPE_CHECKING:
    from penstock.common.rpc import RpcSettings

Workers = Literal["node", "embedded"]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to start: with workers as processes of a node, or in this process on the compiler's engine."""

    config: Config
    tracing: Tracing
    state_dir: Path
    workers: Workers
    note: Callable[[str], None]
    config_file: Path | None = None
    free_ports: bool = False
    forgets: bool = False
    """Whether the state folder is gone with the cluster."""
    imports: tuple[str, ...] = ()
    """Modules that are wanted once the cluster is up."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    url: str
    token: str
    controller: str
    rpc: RpcSettings
    hosted: Hosted


@asynccontextmanager
async def running_cluster(plan: ClusterPlan, engine: SharedEngine) -> AsyncIterator[Cluster]:
    """A cluster that is there for the block; the engine is closed with it."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        yield await _start(plan, engine, stack)


async def _start(plan: ClusterPlan, engine: SharedEngine, stack: AsyncExitStack) -> Cluster:
    # At once, as the engine already does: both come up while this process imports, which takes as long.
    servers = asyncio.create_task(start_servers(stack, plan.config, plan.state_dir, forgets=plan.forgets))
    await asyncio.sleep(0)
    # In a thread, so that this loop goes on; in one, since imports that cross each other can fail.
    await asyncio.to_thread(_import_all, ("penstock.cli.embedded_services", *plan.imports))
    from penstock.api.settings import ApiSettings
    from penstock.cli.embedded_services import start_services
    from penstock.common.rpc import RpcSettings
    from penstock.common.stores import open_stores

    config = plan.config
    urls = await servers
    plan.note("Postgres and NATS are up")
    opening = open_stores(config, database_url=urls.database, nats_url=urls.nats)
    stores = await stack.enter_async_context(opening)
    hosted = Hosted()
    stack.push_async_callback(hosted.close)
    addresses = await start_services(plan, engine, hosted, stores.pool, stores.bus)
    token = config.section("api", ApiSettings).token
    return Cluster(addresses.api, token, addresses.controller, config.section("rpc", RpcSettings), hosted)


def _import_all(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
    from penstock.common.arrow import leave_pandas_out

    leave_pandas_out()
