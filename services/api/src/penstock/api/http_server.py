"""HTTP on a socket that is bound before anything else starts, inside a task of ours."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from penstock.common.errors import SettingsError

_BACKLOG = 2048
_GRACE_SECONDS = 2


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    host = host.strip("[]")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        hint = "another process may be using the port; set another with api.port, or 0 for a free one"
        raise SettingsError(f"cannot serve HTTP on {host}:{port}: {error.strerror}", hint=hint) from error


def url_of(listener: socket.socket) -> str:
    """The address that reaches a listening socket from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_http(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event) -> None:
    """Serve until cancelled; then end the streams by `stopping`, and give other requests a moment."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        await asyncio.shield(serving)
    finally:
        stopping.set()
        server.should_exit = True
        await asyncio.wait((serving,))
        listener.close()
