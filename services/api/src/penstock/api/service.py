"""The api as a service: HTTP, its admin pages, and the ends of previews."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from penstock.api.app import create_app
from penstock.api.checkpoint_store import CheckpointStore
from penstock.api.cluster_store import ClusterStore
from penstock.api.context import Context, Notifications
from penstock.api.observation import RequestMetrics
from penstock.api.peers import Compiler, Controller
from penstock.api.previews import end_previews
from penstock.api.settings import ApiSettings
from penstock.api.store import Store
from penstock.api.udf_store import UdfStore
from penstock.common import service
from penstock.common.admin import AdminSettings, serve_admin
from penstock.common.checkpoint.settings import open_checkpoints
from penstock.common.database import Pool
from penstock.common.errors import SettingsError
from penstock.common.events import LogEvent
from penstock.common.http_server import serve_http
from penstock.common.rpc import RpcSettings, is_loopback
from penstock.common.stores import open_stores

_GRACE_SECONDS = 2

log = structlog.get_logger(__name__)


async def run(process: service.Context) -> None:
    """The api as a process of its own."""
    async with open_stores(process.config) as stores:
        settings = process.config.section("api", ApiSettings)
        await serve(process, settings, pool=stores.pool, bus=stores.bus)


async def serve(
    process: service.Context,
    settings: ApiSettings,
    *,
    pool: Pool,
    bus: Notifications,
    checkpoint_folder: Path | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until cancelled; `ready` is told the URL once requests are taken.

    Savepoints are in `checkpoint_folder` where the settings name no place for them. The pool and the bus stay open.
    """
    if not settings.token and not is_loopback(settings.host):
        hint = "set api.token to a secret that clients send, or serve on 127.0.0.1"
        raise SettingsError(f"refusing to serve the api on {settings.host} without a token", hint=hint)
    storage = open_checkpoints(process.config, checkpoint_folder)
    rpc = process.config.section("rpc", RpcSettings)
    async with AsyncExitStack() as stack:
        compiler = Compiler(settings.compiler, rpc, settings.compile_timeout)
        stack.push_async_callback(compiler.close)
        controller = Controller(settings.controller, rpc)
        stack.push_async_callback(controller.close)
        stores = Store(pool), CheckpointStore(pool), ClusterStore(pool), UdfStore(pool)
        context = Context(settings, *stores, compiler, controller, bus, storage)
        app = create_app(context, process.tracing.tracer(__name__), RequestMetrics(process.registry))
        server = await serve_http(app, host=settings.host, port=settings.port, grace_seconds=_GRACE_SECONDS)
        stack.push_async_callback(server.close)
        # Before the server is closed: streams of events would else hold it up.
        stack.callback(context.stopping.set)
        admin = await serve_admin(
            "api",
            host=process.config.section("admin", AdminSettings).host,
            port=settings.admin_port,
            config=process.config,
            registry=process.registry,
            checks={"database": context.store.ping},
        )
        stack.push_async_callback(admin.close)
        log.info(LogEvent.API_SERVING, url=server.url)
        ready(server.url)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(end_previews(context), name="api-previews")
