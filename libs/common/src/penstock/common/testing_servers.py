"""Real servers for tests, each in a folder that is removed with it."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres


@asynccontextmanager
async def temporary_postgres() -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres that forgets all; tests that should not see each other's tables take `temporary_database` of it."""
    async with _temporary_folder() as folder:
        server = await EmbeddedPostgres.start(folder / "postgres", {"fsync": "off"})
        try:
            yield server
        finally:
            await server.stop()


@asynccontextmanager
async def temporary_database(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of an empty database of a server."""
    name = f"test_{secrets.token_hex(6)}"
    await _execute(server.url, f"CREATE DATABASE {name} STRATEGY file_copy")
    try:
        yield server.url.replace("/postgres?", f"/{name}?")
    finally:
        await _execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def temporary_nats() -> AsyncIterator[EmbeddedNats]:
    """A NATS server with JetStream."""
    async with _temporary_folder() as folder:
        server = await EmbeddedNats.start(folder / "nats")
        try:
            yield server
        finally:
            await server.stop()


@asynccontextmanager
async def _temporary_folder() -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="penstock-test-")
    try:
        yield Path(folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
