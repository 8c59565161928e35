"""How the stores ask Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from penstock.common.database import Connection, Pool, database_errors


class Statements:
    """The base of a store: every statement raises DatabaseUnavailable while Postgres is away."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def _fetch(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        with database_errors():
            return await self._pool.fetch(sql, *arguments)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection
