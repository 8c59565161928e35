"""An api with a real Postgres and NATS for the commands that ask one, and commands as processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from typer.testing import CliRunner

from penstock.api import service as api_service
from penstock.api.settings import ApiSettings
from penstock.api.testing import FakeCompiler, FakeController, api_process
from penstock.cli.main import app
from penstock.common import rpc
from penstock.common.bus import Bus, NatsSettings
from penstock.common.config import load_config
from penstock.common.database import DatabaseSettings, Pool, migrate, open_database
from penstock.common.proto.compiler_pb2_grpc import add_CompilerServiceServicer_to_server
from penstock.common.proto.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from penstock.common.storage import Storage, open_storage
from penstock.common.testing_servers import temporary_nats, temporary_postgres

CONFIG = load_config(environment={})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Api:
    """A running api, whose compiler and controller are fakes."""

    url: str
    pool: Pool
    compiler: FakeCompiler
    controller: FakeController
    storage: Storage


Command = Callable[..., Awaitable[Outcome]]


@pytest.fixture(scope="session")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    settings = CONFIG.section("rpc", rpc.RpcSettings)
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(temporary_postgres())
        nats = await stack.enter_async_context(temporary_nats())
        pool = await open_database(postgres.url, CONFIG.section("database", DatabaseSettings))
        stack.callback(pool.terminate)
        await migrate(pool)
        bus = await Bus.connect(nats.url, CONFIG.section("nats", NatsSettings))
        stack.push_async_callback(bus.close)
        # The api calls only what the fake has.
        compiler, controller = FakeCompiler(), FakeController()  # type: ignore[abstract]

        def add(server: grpc.aio.Server) -> None:
            add_CompilerServiceServicer_to_server(compiler, server)
            add_ControllerServiceServicer_to_server(controller, server)

        server = await rpc.serve(add, host="127.0.0.1", port=0, settings=settings)
        stack.push_async_callback(server.close, 0)
        peers = f"127.0.0.1:{server.port}"
        folder = tmp_path_factory.mktemp("checkpoints")
        update = {"port": 0, "admin_port": 0, "compiler": peers, "controller": peers, "token": "abc"}
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            api_service.serve(
                api_process(),
                CONFIG.section("api", ApiSettings).model_copy(update=update),
                pool=pool,
                bus=bus,
                checkpoint_folder=folder,
                ready=ready.set_result,
            )
        )
        yield Api(await ready, pool, compiler, controller, open_storage(str(folder)))
        task.cancel()
        await asyncio.wait((task,))


@pytest.fixture
def command(api: Api) -> Command:
    """Runs a command of this process's code, against the api."""
    runner = CliRunner(env={"PENSTOCK_API": api.url, "PENSTOCK_TOKEN": "abc"})

    async def run(*arguments: str, stdin: str | None = None) -> Outcome:
        result = await asyncio.to_thread(runner.invoke, app, arguments, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def penstock(tmp_path: Path) -> Callable[..., Awaitable[asyncio.subprocess.Process]]:
    """Starts the command as a process, in a folder of the test's own."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("PENSTOCK")}

    async def start(*arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "penstock"),
            *arguments,
            cwd=tmp_path,
            env={**environment, "PENSTOCK__SPARK__HEAP": "512MiB"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    return start
