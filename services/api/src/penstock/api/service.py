"""The api as a service: HTTP, and the ends of previews."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog
from opentelemetry import trace

from penstock.api.app import create_app
from penstock.api.context import Context, Notifications
from penstock.api.http_server import bind, serve_http, url_of
from penstock.api.peers import Compiler, Controller
from penstock.api.previews import end_previews
from penstock.api.settings import ApiSettings
from penstock.api.store import Store
from penstock.common.database import Pool
from penstock.common.errors import SettingsError
from penstock.common.events import LogEvent
from penstock.common.rpc import RpcSettings, is_loopback

log = structlog.get_logger(__name__)


async def serve(
    settings: ApiSettings,
    *,
    rpc: RpcSettings,
    pool: Pool,
    bus: Notifications,
    tracer: trace.Tracer | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until cancelled; `ready` is told the URL once requests are taken. The pool and the bus stay open."""
    if not settings.token and not is_loopback(settings.host):
        hint = "set api.token to a secret that clients send, or serve on 127.0.0.1"
        raise SettingsError(f"refusing to serve the api on {settings.host} without a token", hint=hint)
    async with AsyncExitStack() as stack:
        compiler = Compiler(settings.compiler, rpc, settings.compile_timeout)
        stack.push_async_callback(compiler.close)
        controller = Controller(settings.controller, rpc)
        stack.push_async_callback(controller.close)
        context = Context(settings, Store(pool), compiler, controller, bus)
        listener = stack.enter_context(await asyncio.to_thread(bind, settings.host, settings.port))
        app = create_app(context, tracer or trace.NoOpTracer())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(serve_http(app, listener, context.stopping), name="api-http")
            tasks.create_task(end_previews(context), name="api-previews")
            url = url_of(listener)
            log.info(LogEvent.API_SERVING, url=url)
            ready(url)
