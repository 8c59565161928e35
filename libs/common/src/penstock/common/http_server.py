"""An HTTP server inside a running loop, which takes no signals and prints nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from penstock.common.errors import SettingsError

_BACKLOG = 128


class HttpServer:
    """A running server, until it is closed."""

    def __init__(self, server: _Server, task: asyncio.Task[None], host: str, port: int) -> None:
        self._server = server
        self._task = task
        self.port = port
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def close(self) -> None:
        """Take no more requests, and end those that are still running after the server's grace."""
        self._server.should_exit = True
        await asyncio.wait((self._task,))


async def serve_http(app: Any, *, host: str, port: int, grace_seconds: int = 1) -> HttpServer:
    """Serve an ASGI application; port 0 takes a free one."""
    listener = await asyncio.to_thread(_bind, host, port)
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=grace_seconds,
        )
    )
    bound: int = listener.getsockname()[1]
    task = asyncio.create_task(server.serve([listener]), name=f"http-{bound}")
    ready = asyncio.create_task(server.ready.wait(), name=f"http-{bound}-ready")
    try:
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    if task.done():
        task.result()
    return HttpServer(server, task, host, bound)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        hint = "another process may be using the port; set another, or 0 for a free one"
        raise SettingsError(f"cannot serve HTTP on {host}:{port}: {error.strerror}", hint=hint) from error


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's own matter."""
        yield
