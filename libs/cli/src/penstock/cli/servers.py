"""The embedded Postgres and NATS of a cluster, started again when they die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog
from pydantic import ConfigDict

from penstock.common.config import Config, Settings
from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres
from penstock.common.errors import PenstockError
from penstock.common.events import LogEvent

_AGAIN_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class _Url(Settings):
    """What is needed of a section here, where its own model would bring its client along."""

    model_config = ConfigDict(extra="ignore")

    url: str


class Server(Protocol):
    """A child process that serves."""

    url: str

    @property
    def ended(self) -> asyncio.Event: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerUrls:
    database: str
    nats: str


async def start_servers(stack: AsyncExitStack, config: Config, state: Path, *, forgets: bool) -> ServerUrls:
    """Start what the settings have no URL of, both at once; the stack ends it."""
    database, nats = config.section("database", _Url).url, config.section("nats", _Url).url
    options = {"fsync": "off"} if forgets else {}
    nats_port = 0

    async def start_postgres() -> EmbeddedPostgres:
        return await EmbeddedPostgres.start(state / "postgres", options)

    async def start_nats() -> EmbeddedNats:
        # Again at the same port: whoever was connected looks there.
        nonlocal nats_port
        server = await EmbeddedNats.start(state / "nats", nats_port)
        nats_port = server.port
        return server

    starting = [
        _given(database) if database else _kept(stack, "postgres", start_postgres),
        _given(nats) if nats else _kept(stack, "nats", start_nats),
    ]
    # Both are waited for even if one fails, so that the stack has what there is to end.
    found = await asyncio.gather(*starting, return_exceptions=True)
    for outcome in found:
        if isinstance(outcome, BaseException):
            raise outcome
    return ServerUrls(*(str(url) for url in found))


async def _given(url: str) -> str:
    return url


async def _kept(stack: AsyncExitStack, name: str, start: Callable[[], Awaitable[Server]]) -> str:
    server = await start()
    keeper = asyncio.create_task(_keep(server, start), name=f"{name}-keeper")

    async def stop() -> None:
        keeper.cancel()
        await asyncio.wait((keeper,))

    stack.push_async_callback(stop)
    return server.url


async def _keep(server: Server, start: Callable[[], Awaitable[Server]]) -> None:
    """Have the server there until cancelled."""
    try:
        while True:
            await server.ended.wait()
            try:
                server = await start()
            except PenstockError as error:
                log.warning(LogEvent.EMBEDDED_LOST, reason=error.message)
                await asyncio.sleep(_AGAIN_SECONDS)
    finally:
        await server.stop()
