"""The lease that makes one controller the leader: who may take it when, and what that means for what leaders write.

Time is the database's alone, so that clocks of controllers do not matter. A lease that has run out is still its
holder's until somebody takes it, which raises the generation; whatever is written by an older generation is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import asyncpg
import structlog

from penstock.common.database import Connection, Pool
from penstock.common.errors import DatabaseUnavailable, InternalError
from penstock.common.events import LogEvent
from penstock.controller.statements import read_queries, statements

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads, or led last."""

    generation: int
    holder: str
    address: str
    expires_at: datetime


def resolve_claim(lease: Lease, holder: str, address: str, now: datetime, lasts: timedelta) -> Lease | None:
    """The lease as a controller that does not lead may take it; None while it is another's."""
    if lease.holder != holder and now < lease.expires_at:
        return None
    return Lease(lease.generation + 1, holder, address, now + lasts)


def resolve_renewal(lease: Lease, generation: int, now: datetime, lasts: timedelta) -> Lease | None:
    """The lease as its holder renews it, however late; None once another has taken it."""
    return replace(lease, expires_at=now + lasts) if lease.generation == generation else None


def resolve_release(lease: Lease, generation: int, now: datetime) -> Lease | None:
    """The lease as its holder gives it back; None once another has taken it."""
    return replace(lease, expires_at=min(lease.expires_at, now)) if lease.generation == generation else None


class LeaseLost(DatabaseUnavailable):
    """Another controller leads. To whoever writes it is as if Postgres were away, until the term is ended, which is
    at once."""


class PostgresLease:
    """Raises DatabaseUnavailable while Postgres is away. It keeps a connection, so that nothing slow holds it up."""

    def __init__(self, pool: Pool, *, timeout: timedelta) -> None:
        self._pool = pool
        self._timeout = timeout.total_seconds()
        self._queries = read_queries()
        self._held: Connection | None = None

    async def look(self) -> tuple[Lease, datetime]:
        """The lease, and what time it is."""
        async with self._connection() as connection:
            row = await connection.fetchrow(self._queries["lease"], timeout=self._timeout)
        if row is None:
            raise InternalError("the database has no lease of the controller", hint="restore the row of leases")
        return Lease(row["generation"], row["holder"], row["address"], row["expires_at"]), row["now"]

    async def swap(self, seen: Lease, wanted: Lease) -> bool:
        """Change the lease, unless it has changed since it was seen."""
        values = (wanted.generation, wanted.holder, wanted.address, wanted.expires_at)
        async with self._connection() as connection:
            done = await connection.execute(
                self._queries["swap_lease"], seen.generation, seen.expires_at, *values, timeout=self._timeout
            )
        return done == "UPDATE 1"

    async def close(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            await self._pool.release(held, timeout=self._timeout)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        with statements():
            try:
                if self._held is None:
                    self._held = await self._pool.acquire(timeout=self._timeout)
                yield self._held
            except asyncpg.InterfaceError as error:
                await self._drop()
                raise DatabaseUnavailable(f"the connection is gone: {error}") from error
            except BaseException:
                await self._drop()
                raise

    async def _drop(self) -> None:
        """One that may be in the midst of something is of no more use."""
        if self._held is not None:
            # The pool has taken back one that broke.
            with suppress(asyncpg.InterfaceError):
                self._held.terminate()
        await self.close()


class LeaderWrites:
    """The transactions of a leader: none of them takes effect once another leads."""

    def __init__(self, pool: Pool, generation: int, refused: Callable[[], None]) -> None:
        self._pool = pool
        self._generation = generation
        self._refused = refused
        self._query = read_queries()["fence"]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """The block of one transaction; raises LeaseLost."""
        with statements():
            async with self._pool.acquire() as connection, connection.transaction():
                self._check(await connection.fetchval(self._query))
                yield connection

    async def confirm(self) -> None:
        """Return if no other leads; raises LeaseLost."""
        with statements():
            self._check(await self._pool.fetchval(self._query))

    def _check(self, newest: int | None) -> None:
        if newest != self._generation:
            log.warning(LogEvent.WRITE_REFUSED, generation=self._generation, newest=newest)
            self._refused()
            raise LeaseLost(f"the controller of generation {newest} leads")
