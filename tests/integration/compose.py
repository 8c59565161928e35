"""Runs every service of deploy/compose.yaml as a process, with exactly its command, environment and health check.

    unshare --net --mount python compose.py

Inside network and mount namespaces of its own each service has its usual ports, and the names of the services resolve.
Ends with 0 when a pipeline that was submitted by REST gave its rows.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import yaml
from harness import ROOT, Process, plain_environment

from penstock.common.embedded import EmbeddedPostgres
from penstock.common.testing import eventually

COMPOSE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
IMAGE: Final = (ROOT / "deploy/Dockerfile").read_text()
OURS: Final = ("compiler", "controller", "api", "node")
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")
_IFF_UP, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 1, 0x8913, 0x8914


def environment_of(service: str) -> dict[str, str]:
    """What compose gives a service when the user has set nothing."""
    given = COMPOSE["services"][service]["environment"]
    return {name: _VARIABLE.sub(r"\1", str(value)) for name, value in given.items()}


def command_of(service: str) -> list[str]:
    entry = re.search(r'^ENTRYPOINT \["(\w+)"\]', IMAGE, re.MULTILINE)
    assert entry is not None
    return [str(Path(sys.executable).parent / entry[1]), *COMPOSE["services"][service]["command"]]


async def is_healthy(service: str) -> bool:
    kind, program, *arguments = COMPOSE["services"][service]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    check = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.DEVNULL)
    return await check.wait() == 0


def enter_network(folder: Path) -> None:
    """Brings loopback up, and lets the names of the services resolve to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
    hosts = folder / "hosts"
    names = ["localhost", socket.gethostname(), *COMPOSE["services"]]
    hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)


def write_access(folder: Path) -> Path:
    """Who may connect: a file that the user whom Postgres runs as can read."""
    access = folder / "pg_hba.conf"
    access.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    access.chmod(0o644)
    folder.chmod(0o755)
    return access


async def start_postgres(folder: Path) -> EmbeddedPostgres:
    """Postgres as its image would have it: reached by TCP with a password."""
    access = await asyncio.to_thread(write_access, folder)
    options = {"listen_addresses": "127.0.0.1", "port": "5432", "hba_file": str(access)}
    postgres = await EmbeddedPostgres.start(folder / "postgres", options)
    given = environment_of("postgres")
    connection = await asyncpg.connect(postgres.url)
    await connection.execute(f"ALTER ROLE {given['POSTGRES_USER']} PASSWORD '{given['POSTGRES_PASSWORD']}'")
    await connection.execute(f"CREATE DATABASE {given['POSTGRES_DB']}")
    await connection.close()
    return postgres


async def start_nats(folder: Path) -> Process:
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert binary is not None
    arguments = [str(folder / "nats") if part == "/data" else part for part in COMPOSE["services"]["nats"]["command"]]
    return await Process.start("nats", [binary, "-a", "127.0.0.1", *arguments], plain_environment(), folder)


async def submit() -> None:
    """A pipeline by REST, from the published port, with the token that compose gives."""
    token = environment_of("api")["PENSTOCK__API__TOKEN"]
    port = COMPOSE["services"]["api"]["ports"][0].split(":")[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60) as client:
        assert (await client.get("/pipelines")).status_code == 401
        client.headers["authorization"] = f"Bearer {token}"
        query = "CREATE TABLE impulse WITH (connector = 'impulse', message_count = '3'); SELECT counter FROM impulse"
        created = await client.post("/pipelines", json={"name": "compose", "query": query})
        assert created.status_code == 201, created.text
        async with client.stream("GET", f"/jobs/{created.json()['job_id']}/output") as stream:
            text = "".join([line async for line in stream.aiter_lines()])
        assert text.count('"counter"') == 3, text


async def run(folder: Path) -> None:
    postgres = await start_postgres(folder)
    processes = [await start_nats(folder)]
    try:
        for service in OURS:
            environment = plain_environment(**environment_of(service))
            processes.append(await Process.start(service, command_of(service), environment, folder))
        for service in OURS:
            await eventually(lambda service=service: is_healthy(service), 90)  # type: ignore[misc]
            print(f"{service} is healthy", flush=True)
        await submit()
        print("the pipeline gave its rows", flush=True)
        codes = {process.name: await process.stop() for process in reversed(processes[1:])}
        assert set(codes.values()) == {0}, codes
    except BaseException:
        for process in processes:
            print(f"--- {process.name}\n{process.tail()}", flush=True)
        raise
    finally:
        for process in processes:
            if process.returncode is None:
                await process.stop()
        await postgres.stop()


if __name__ == "__main__":
    os.environ["PENSTOCK__LOG__LEVEL"] = "warning"
    with tempfile.TemporaryDirectory(prefix="penstock-compose-") as name:
        enter_network(Path(name))
        asyncio.run(run(Path(name)))
