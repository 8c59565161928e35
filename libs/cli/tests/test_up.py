"""`penstock up` as a user has it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from penstock.common.testing import eventually

QUERY = "CREATE TABLE impulse WITH (connector = 'impulse', event_rate = 100); SELECT counter FROM impulse"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def free_ports(tmp_path: Path) -> None:
    """In the settings of the test's folder."""
    sections = ["[api]\nport = 0\nadmin_port = 0"]
    sections += [f"[{name}]\nrpc_port = 0\nadmin_port = 0" for name in ("controller", "compiler", "node")]
    (tmp_path / "penstock.toml").write_text("\n".join(sections))


async def url_of(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    while line := (await process.stderr.readline()).decode():
        said.append(line)
        if found := re.search(r"is up at (http://\S+)", line):
            return found[1]
    raise AssertionError("".join(said))


async def assert_gone(processes: list[psutil.Process]) -> None:
    async def gone() -> bool:
        return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)

    await eventually(gone, 30)


async def test_pipeline_runs_goes_on_at_the_next_start_and_nothing_is_left(penstock: Any, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    process = await penstock("up", "--state-dir", state)
    async with httpx.AsyncClient(base_url=f"{await url_of(process)}/api/v1", timeout=60) as client:
        second = await penstock("up", "--state-dir", state)
        _, err = await second.communicate()
        assert second.returncode == 2 and f"process {process.pid}) is using" in err.decode()
        created = (await client.post("/pipelines", json={"name": "p", "query": QUERY})).json()
        async with client.stream("GET", f"/jobs/{created['job_id']}/output") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    assert json.loads(line.removeprefix("data: "))["rows"][0] == {"counter": 0}
                    break
    processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()
    await assert_gone(processes)

    process = await penstock("up", "--state-dir", state)
    async with httpx.AsyncClient(base_url=f"{await url_of(process)}/api/v1", timeout=60) as client:

        async def runs_again() -> bool:
            job = (await client.get(f"/jobs/{created['job_id']}")).json()
            return bool(job["state"] == "running" and job["generation"] > 1)

        await eventually(runs_again, 90)
    processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    await process.communicate()
    await assert_gone(processes)


async def test_taken_port_is_told_before_anything_is_started(penstock: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "penstock.toml").write_text(f"[api]\nport = {port}\n")
        process = await penstock("up", "--state-dir", str(tmp_path / "state"))
        _, err = await process.communicate()
    assert process.returncode == 2
    assert f"cannot use port {port} of the api" in err.decode() and "api.port" in err.decode()
    assert not (tmp_path / "state" / "postgres").exists()
