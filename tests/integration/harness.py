"""A whole Penstock for a test: Postgres, NATS and the services as processes on free ports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import psutil

from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres
from penstock.common.testing import eventually, free_port

ROOT: Final = Path(__file__).parents[2]
PENSTOCK: Final = Path(sys.executable).parent / "penstock"
START_SECONDS: Final = 180.0
TERMINAL: Final = frozenset({"stopped", "finished", "failed"})


def plain_environment(**extra: str) -> dict[str, str]:
    """This process's environment without settings of Penstock, and those given."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("PENSTOCK")}
    return {**kept, "PENSTOCK__LOG__FORMAT": "json", **extra}


class Process:
    """A started command, whose output goes to a file that a failing test can show."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, command: list[str], environment: Mapping[str, str], folder: Path) -> Process:
        log = folder / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def kill(self) -> None:
        """kill -9, as a crash is."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self, within_seconds: float = 20.0) -> int:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(within_seconds):
            return await self._process.wait()

    def suspend(self) -> None:
        """As a machine that stands still, until it is resumed."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return [line for line in found if isinstance(line, dict) and "event" in line]

    def tail(self, lines: int = 30) -> str:
        return "\n".join(line[:300] for line in self.log.read_text(errors="replace").splitlines()[-lines:])


class Deployment:
    """The services of one cluster; `client` speaks to its api."""

    def __init__(
        self,
        folder: Path,
        postgres: EmbeddedPostgres,
        nats: EmbeddedNats,
        settings: Mapping[str, str],
        controllers: int = 1,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.postgres = postgres
        self.nats = nats
        self.processes: dict[str, Process] = {}
        self.controllers = ("controller", *(f"controller{number}" for number in range(2, controllers + 1)))
        services = ("api", "compiler", *self.controllers)
        self.ports = {name: free_port() for service in services for name in (service, f"{service}_admin")}
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.ports['api']}/api/v1", timeout=30)

    @classmethod
    @asynccontextmanager
    async def running(
        cls, *, nodes: int = 1, slots: int = 2, controllers: int = 1, settings: Mapping[str, str] | None = None
    ) -> AsyncIterator[Deployment]:
        """A cluster with its api answering and its nodes registered; `settings` are those of all its services."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-test-")))
            postgres = await EmbeddedPostgres.start(folder / "postgres", {"fsync": "off"})
            nats = await EmbeddedNats.start(folder / "nats")
            deployment = await stack.enter_async_context(cls(folder, postgres, nats, settings or {}, controllers))
            for service in ("compiler", *deployment.controllers, "api"):
                await deployment.start(service)
            for number in range(1, nodes + 1):
                await deployment.start_node(f"node{number}", slots)
            await deployment.until_ready(nodes)
            yield deployment

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for process in self.processes.values():
                print(f"--- {process.name}\n{process.tail()}")
        await self.client.aclose()
        await asyncio.gather(*(process.stop() for process in self.processes.values()))
        await asyncio.gather(self.postgres.stop(), self.nats.stop())

    def environment(self, service: str) -> dict[str, str]:
        at = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        kind = "controller" if service in self.controllers else service
        section = kind.upper()
        settings = {
            "DATABASE__URL": self.postgres.url,
            "NATS__URL": self.nats.url,
            "CHECKPOINTS__URL": str(self.folder / "checkpoints"),
            f"{section}__ADMIN_PORT": str(self.ports[f"{service}_admin"]),
            f"{section}__{'PORT' if service == 'api' else 'RPC_PORT'}": str(self.ports[service]),
            "API__COMPILER": at["compiler"],
            "API__CONTROLLER": self.controller_addresses,
            **self.settings,
        }
        return plain_environment(**{f"PENSTOCK__{name}": value for name, value in settings.items()})

    async def start(self, service: str) -> Process:
        command = [str(PENSTOCK), "controller" if service in self.controllers else service]
        process = await Process.start(service, command, self.environment(service), self.folder)
        self.processes[service] = process
        return process

    async def start_node(self, name: str, slots: int = 2) -> Process:
        settings = {
            "NODE__CONTROLLER": self.controller_addresses,
            "NODE__RPC_PORT": "0",
            "NODE__ADMIN_PORT": "0",
            "NODE__SLOTS": str(slots),
            "SPARK__HEAP": "512MiB",
            **self.settings,
        }
        environment = plain_environment(**{f"PENSTOCK__{name}": value for name, value in settings.items()})
        process = await Process.start(name, [str(PENSTOCK), "node"], environment, self.folder)
        self.processes[name] = process
        return process

    async def until_ready(self, nodes: int) -> None:
        async def ready() -> bool:
            for process in self.processes.values():
                assert process.returncode is None, f"{process.name} ended: {process.tail()}"
            with suppress(httpx.HTTPError):
                known = await self.client.get("/nodes")
                return known.status_code == 200 and len(known.json()["data"]) == nodes and await self._healthy()
            return False

        await eventually(ready, START_SECONDS)

    async def _healthy(self) -> bool:
        async with httpx.AsyncClient() as client:
            for service in ("api", "compiler", *self.controllers):
                answer = await client.get(f"http://127.0.0.1:{self.ports[f'{service}_admin']}/status")
                if answer.status_code != 200:
                    return False
        return True

    @property
    def controller_addresses(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[name]}" for name in self.controllers)

    async def status(self, service: str) -> dict[str, Any]:
        """What a service's admin page says; nothing if it does not answer."""
        with suppress(httpx.HTTPError):
            async with httpx.AsyncClient(timeout=1) as client:
                answer = await client.get(f"http://127.0.0.1:{self.ports[f'{service}_admin']}/status")
                status: dict[str, Any] = answer.json()
                return status
        return {}

    async def leader(self, *others: str, within_seconds: float = 30.0) -> str:
        """The controller that leads, once one does that is not among some others."""
        found = ""

        async def leads() -> bool:
            nonlocal found
            for name in self.controllers:
                if name not in others and (await self.status(name)).get("role") == "leader":
                    found = name
            return bool(found)

        await eventually(leads, within_seconds)
        return found

    async def create(self, query: str, **options: Any) -> dict[str, Any]:
        answer = await self.client.post("/pipelines", json={"name": "test", "query": query, **options})
        assert answer.status_code == 201, answer.text
        pipeline: dict[str, Any] = answer.json()
        return pipeline

    @asynccontextmanager
    async def pipeline(self, query: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
        """A pipeline that runs for the block."""
        pipeline = await self.create(query, **options)
        try:
            yield pipeline
        finally:
            if (await self.job(pipeline["job_id"]))["state"] not in TERMINAL:
                stopped = await self.client.patch(f"/pipelines/{pipeline['id']}", json={"stop": "immediate"})
                assert stopped.status_code == 200, stopped.text
                await self.until_state(pipeline["job_id"], *TERMINAL)

    async def job(self, job_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        job: dict[str, Any] = answer.json()
        return job

    async def until_state(self, job_id: str, *states: str, within_seconds: float = 120.0) -> dict[str, Any]:
        """The job, once it is in one of the states; a terminal one that was not asked for fails at once."""
        found: dict[str, Any] = {}

        async def reached() -> bool:
            nonlocal found
            with suppress(httpx.TransportError):
                found = await self.job(job_id)
                resumes = found["state"] == "stopped" and found["stop"] == "none"
                if found["state"] in TERMINAL and found["state"] not in states and not resumes:
                    raise AssertionError(f"the job is {found['state']}: {json.dumps(found)[:2000]}")
                return found["state"] in states
            return False

        await eventually(reached, within_seconds)
        return found

    async def rows_out(self, job_id: str) -> int:
        """What the sinks of a job have written."""
        answer = await self.client.get(f"/jobs/{job_id}/metrics")
        assert answer.status_code == 200, answer.text
        return max((node["rows_out"] for node in answer.json()["nodes"]), default=0)

    async def until_rows(self, job_id: str, rows: int, within_seconds: float = 60.0) -> None:
        """Waits until the sinks of a job have written so many rows."""

        async def written() -> bool:
            return await self.rows_out(job_id) >= rows

        await eventually(written, within_seconds)

    async def advances(self, job_id: str) -> bool:
        """Whether rows still arrive."""
        await self.until_rows(job_id, await self.rows_out(job_id) + 1)
        return True

    async def workers(self, job_id: str) -> list[psutil.Process]:
        """Every worker process that has tasks of a job."""
        ids = {worker["id"] for worker in (await self.job(job_id))["workers"]}
        found = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("PENSTOCK__WORKER__ID") in ids and "penstock.worker" in process.cmdline():
                    found.append(process)
        return found

    async def kill_workers(self, job_id: str) -> int:
        """kill -9 of every worker process that has tasks of a job; returns how many that were."""
        killed = 0
        for process in await self.workers(job_id):
            with suppress(psutil.NoSuchProcess):
                process.kill()
                killed += 1
        return killed

    async def output(self, job_id: str, rows: int) -> list[dict[str, Any]]:
        """The first rows of a job's preview."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(60), self.client.stream("GET", f"/jobs/{job_id}/output", timeout=60) as stream:
            assert stream.status_code == 200, await stream.aread()
            async for line in stream.aiter_lines():
                if line.startswith("data:") and len(found) < rows:
                    found += json.loads(line.removeprefix("data:")).get("rows", [])
                if line.startswith("event: end") or len(found) >= rows:
                    break
        return found
