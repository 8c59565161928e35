"""`penstock up`: everything on this machine, and nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from harness import PENSTOCK, plain_environment

from penstock.common.testing import eventually, free_port

SQUARES = """
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '100');
SELECT counter, counter * counter AS square FROM impulse;
"""
PORTS = ("API__PORT", "CONTROLLER__RPC_PORT", "COMPILER__RPC_PORT", "NODE__RPC_PORT")
ADMIN_PORTS = ("API__ADMIN_PORT", "CONTROLLER__ADMIN_PORT", "COMPILER__ADMIN_PORT", "NODE__ADMIN_PORT")


@dataclass
class Up:
    process: psutil.Popen
    url: str

    def family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


@asynccontextmanager
async def penstock_up(folder: Path) -> AsyncIterator[Up]:
    ports = {f"PENSTOCK__{name}": str(free_port()) for name in (*PORTS, *ADMIN_PORTS)}
    log = folder / "up.log"
    with log.open("wb") as output:
        process = psutil.Popen(
            [str(PENSTOCK), "up", "--state-dir", str(folder / "state")],
            env=plain_environment(**ports), stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip

    async def printed() -> bool:
        text = await asyncio.to_thread(log.read_text)
        assert process.poll() is None, text
        return bool(re.search(r"http://127\.0\.0\.1:\d+", text))

    try:
        await eventually(printed, 60)
        yield Up(process, f"http://127.0.0.1:{ports['PENSTOCK__API__PORT']}")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


async def all_gone(family: list[psutil.Process], within_seconds: float) -> None:
    _gone, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=within_seconds)
    assert not alive, alive


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_up_runs_a_pipeline_and_leaves_nothing(end: signal.Signals, tmp_path: Path) -> None:
    async with penstock_up(tmp_path) as up, httpx.AsyncClient(base_url=f"{up.url}/api/v1", timeout=30) as client:
        created = await client.post("/pipelines", json={"name": "squares", "query": SQUARES})
        assert created.status_code == 201, created.text
        async with asyncio.timeout(60), client.stream("GET", f"/jobs/{created.json()['job_id']}/output") as stream:
            async for line in stream.aiter_lines():
                if '"square"' in line:
                    break
        family = up.family()
        up.process.send_signal(end)
        await all_gone(family, 20)
        if end is not signal.SIGKILL:
            assert up.process.returncode in (0, 130)
        with pytest.raises(httpx.ConnectError):
            await client.get("/ping")


async def test_up_again_finds_its_pipelines(tmp_path: Path) -> None:
    async with penstock_up(tmp_path) as up, httpx.AsyncClient(base_url=f"{up.url}/api/v1", timeout=30) as client:
        created = (await client.post("/pipelines", json={"name": "squares", "query": SQUARES})).json()
        family = up.family()
        up.process.send_signal(signal.SIGINT)
        await all_gone(family, 20)
    async with penstock_up(tmp_path) as up, httpx.AsyncClient(base_url=f"{up.url}/api/v1", timeout=30) as client:

        async def runs_again() -> bool:
            job = (await client.get(f"/jobs/{created['job_id']}")).json()
            return bool(job["state"] == "running")

        await eventually(runs_again, 60)
