from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.common.bus import Bus, NatsSettings
from penstock.common.config import load_config
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres
from penstock.common.testing_servers import temporary_database, temporary_nats, temporary_postgres
from penstock.controller.testing import FakeWorkers
from penstock.controller.testing_desired import Desired


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    async with temporary_postgres() as server:
        yield server


@pytest.fixture(scope="session")
async def nats() -> AsyncIterator[EmbeddedNats]:
    async with temporary_nats() as server:
        yield server


@pytest.fixture
async def pool(postgres: EmbeddedPostgres) -> AsyncIterator[Pool]:
    async with temporary_database(postgres) as url:
        pool = await open_database(url, load_config(environment={}).section("database", DatabaseSettings))
        await migrate(pool)
        yield pool
        pool.terminate()


@pytest.fixture
async def bus(nats: EmbeddedNats) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats.url, load_config(environment={}).section("nats", NatsSettings))
    yield bus
    await bus.close()


@pytest.fixture
def desired(pool: Pool) -> Desired:
    return Desired(pool)


@pytest.fixture
async def workers() -> AsyncIterator[FakeWorkers]:
    workers = FakeWorkers()
    yield workers
    await workers.close()
