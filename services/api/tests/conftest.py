"""An api over a real Postgres, a real NATS, and fakes of the compiler and the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from penstock.api.service import serve
from penstock.api.settings import ApiSettings
from penstock.api.testing import FakeCompiler, FakeController, api_process
from penstock.common import rpc
from penstock.common.bus import Bus, NatsSettings
from penstock.common.config import load_config
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres
from penstock.common.proto.compiler_pb2_grpc import add_CompilerServiceServicer_to_server
from penstock.common.proto.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from penstock.common.rpc import RpcSettings
from penstock.common.storage import Storage, open_storage
from penstock.common.testing_servers import temporary_database, temporary_nats, temporary_postgres

CONFIG = load_config(environment={})
RPC = CONFIG.section("rpc", RpcSettings)


@dataclass(frozen=True, slots=True)
class Api:
    """A running api, and what it talks to."""

    client: httpx.AsyncClient
    pool: Pool
    bus: Bus
    compiler: FakeCompiler
    controller: FakeController
    settings: ApiSettings
    compiler_server: rpc.RpcServer
    controller_server: rpc.RpcServer
    storage: Storage

    async def create(self, **fields: object) -> dict[str, object]:
        response = await self.client.post("/pipelines", json={"name": "p", "query": "SELECT 1", **fields})
        assert response.status_code == 201, response.text
        created: dict[str, object] = response.json()
        return created

    async def set_state(self, job: object, state: str, **columns: object) -> None:
        """Writes as the controller does."""
        names = ["job_id", "state", *columns]
        values = ", ".join(f"${n}" for n in range(1, len(names) + 1))
        updates = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
        await self.pool.execute(
            f"INSERT INTO job_statuses ({', '.join(names)}) VALUES ({values}) "
            f"ON CONFLICT (job_id) DO UPDATE SET {updates}",
            job,
            state,
            *columns.values(),
        )


@asynccontextmanager
async def running(settings: ApiSettings, pool: Pool, bus: Bus, folder: Path) -> AsyncIterator[str]:
    """The URL of an api that is up while the block lasts."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = serve(api_process(), settings, pool=pool, bus=bus, checkpoint_folder=folder, ready=ready.set_result)
    task = asyncio.create_task(serving)
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await task
    try:
        yield ready.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


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
        pool = await open_database(url, CONFIG.section("database", DatabaseSettings))
        await migrate(pool)
        yield pool
        await pool.close()


@pytest.fixture
async def bus(nats: EmbeddedNats) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats.url, CONFIG.section("nats", NatsSettings))
    yield bus
    await bus.close()


@pytest.fixture
async def api(pool: Pool, bus: Bus, tmp_path: Path) -> AsyncIterator[Api]:
    # The api calls only what the fake has.
    compiler, controller = FakeCompiler(), FakeController()  # type: ignore[abstract]
    compiler_server = await rpc.serve(
        lambda server: add_CompilerServiceServicer_to_server(compiler, server),
        host="127.0.0.1",
        port=0,
        settings=RPC,
    )
    controller_server = await rpc.serve(
        lambda server: add_ControllerServiceServicer_to_server(controller, server),
        host="127.0.0.1",
        port=0,
        settings=RPC,
    )
    settings = CONFIG.section("api", ApiSettings).model_copy(
        update={
            "port": 0,
            "admin_port": 0,
            "compiler": f"127.0.0.1:{compiler_server.port}",
            "controller": f"127.0.0.1:{controller_server.port}",
        }
    )
    async with (
        running(settings, pool, bus, tmp_path) as url,
        httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=10) as client,
    ):
        storage = open_storage(str(tmp_path))
        yield Api(client, pool, bus, compiler, controller, settings, compiler_server, controller_server, storage)
    await compiler_server.close(0)
    await controller_server.close(0)
