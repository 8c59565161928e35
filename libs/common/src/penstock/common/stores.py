"""Postgres and NATS of a service, opened together: the schema up to date, the bus connecting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from penstock.common.bus import Bus, NatsSettings
from penstock.common.config import Config
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Stores:
    """What a service keeps its state in, and hears of others by."""

    pool: Pool
    bus: Bus


@asynccontextmanager
async def open_stores(config: Config, *, database_url: str = "", nats_url: str = "") -> AsyncIterator[Stores]:
    """Both for a block, at these URLs, or else at those of the settings, which must have them then."""
    database, nats = config.section("database", DatabaseSettings), config.section("nats", NatsSettings)
    database_url, nats_url = database_url or database.url, nats_url or nats.url
    for name, url in (("database.url", database_url), ("nats.url", nats_url)):
        if not url:
            raise SettingsError(f"{name} is not set", hint="`penstock up` starts everything that is needed, embedded")
    async with AsyncExitStack() as stack:
        pool = await open_database(database_url, database)
        # Without waiting for a server that has gone away.
        stack.callback(pool.terminate)
        await migrate(pool)
        bus = await Bus.connect(nats_url, nats)
        stack.push_async_callback(bus.close)
        yield Stores(pool, bus)
