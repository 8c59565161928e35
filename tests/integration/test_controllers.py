"""Controllers die, are suspended and come back: another leads, jobs are not restarted, and rows are there once."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from harness import Deployment

from penstock.common.config import load_config
from penstock.common.errors import FencedError
from penstock.common.proto import controller_pb2, worker_pb2
from penstock.common.proto.worker_pb2_grpc import WorkerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.common.testing import eventually

pytestmark = pytest.mark.takes_turns

AWAY_SECONDS = 30.0 if os.environ.get("PENSTOCK_TEST_FULL") else 8.0
LEADS_WITHIN_SECONDS = 10.0
PARALLELISM = 2
RPC = load_config(environment={}).section("rpc", RpcSettings)

SQL = """
SET checkpoint_interval = '500ms';
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '500');
CREATE TABLE plain (counter BIGINT) WITH (connector = 'filesystem', type = 'sink', path = '{folder}/plain');
INSERT INTO plain SELECT counter FROM impulse;
"""


def committed(folder: Path) -> list[int]:
    files = sorted((folder / "plain").glob("part-*"))
    return [json.loads(line)["counter"] for file in files for line in file.read_text().splitlines()]


async def until_committed(folder: Path, rows: int, within_seconds: float = 60) -> None:
    async def grown() -> bool:
        return len(committed(folder)) > rows

    await eventually(grown, within_seconds)


async def stop_and_check(cluster: Deployment, pipeline: dict[str, Any], folder: Path, generation: int) -> None:
    """The job was never restarted, and each row up to its last is in the files once."""
    job = await cluster.job(pipeline["job_id"])
    assert (job["state"], job["generation"]) == ("running", generation)
    stopped = await cluster.client.patch(f"/pipelines/{pipeline['id']}", json={"stop": "checkpoint"})
    assert stopped.status_code == 200, stopped.text
    await cluster.until_state(pipeline["job_id"], "stopped")
    rows = committed(folder)
    for subtask in range(PARALLELISM):
        own = sorted(row for row in rows if row % PARALLELISM == subtask)
        assert own == list(range(subtask, PARALLELISM * len(own), PARALLELISM))


async def started(cluster: Deployment, folder: Path) -> tuple[dict[str, Any], int]:
    (folder / "plain").mkdir()
    pipeline = await cluster.create(SQL.format(folder=folder), parallelism=PARALLELISM)
    job = await cluster.until_state(pipeline["job_id"], "running")
    await until_committed(folder, 0)
    return pipeline, job["generation"]


@pytest.mark.timeout(200)
async def test_after_the_leaders_death_another_leads_and_no_job_is_restarted(
    cluster: Deployment, tmp_path: Path
) -> None:
    pipeline, generation = await started(cluster, tmp_path)
    dead = await cluster.leader()
    follower = next(name for name in cluster.controllers if name != dead)
    told = await cluster.status(follower)
    assert (told["role"], told["leader"]) == ("follower", f"127.0.0.1:{cluster.ports[dead]}")

    await cluster.processes[dead].kill()
    killed_at = time.monotonic()
    await cluster.leader(dead)
    assert time.monotonic() - killed_at < LEADS_WITHIN_SECONDS
    # Twice: what was under way as the leader died is completed or given up first.
    for _ in range(2):
        await until_committed(tmp_path, len(committed(tmp_path)))
    assert await cluster.advances(pipeline["job_id"])
    await stop_and_check(cluster, pipeline, tmp_path, generation)
    await cluster.start(dead)
    await cluster.until_ready(2)


@pytest.mark.timeout(200)
async def test_all_controllers_may_be_away(cluster: Deployment, tmp_path: Path) -> None:
    pipeline, generation = await started(cluster, tmp_path)
    for name in cluster.controllers:
        await cluster.processes[name].kill()
    await asyncio.sleep(AWAY_SECONDS)  # the outage itself
    for name in cluster.controllers:
        await cluster.start(name)
    await cluster.leader()
    await until_committed(tmp_path, len(committed(tmp_path)))
    await stop_and_check(cluster, pipeline, tmp_path, generation)
    await cluster.until_ready(2)


@pytest.mark.timeout(200)
async def test_what_a_suspended_leader_does_late_is_refused(cluster: Deployment, tmp_path: Path) -> None:
    pipeline, generation = await started(cluster, tmp_path)
    suspended = await cluster.leader()
    process = cluster.processes[suspended]
    deposed = (await cluster.status(suspended))["generation"]
    process.suspend()
    try:
        await cluster.leader(suspended, within_seconds=LEADS_WITHIN_SECONDS)
        await until_committed(tmp_path, len(committed(tmp_path)))
    finally:
        process.resume()

    async def follows() -> bool:
        return (await cluster.status(suspended)).get("role") == "follower"

    await eventually(follows, 10)
    events = [line["event"] for line in process.lines()]
    assert "lease_lost" in events or "write_refused" in events
    # As it would have gone on, had it been faster than what it was told.
    for worker, address in await workers_of(cluster, pipeline["job_id"]):
        request = worker_pb2.StopExecutionRequest(
            job=controller_pb2.TaskOwner(job_id=pipeline["job_id"], generation=generation),
            mode=worker_pb2.STOP_MODE_IMMEDIATE,
        )
        with pytest.raises(FencedError):
            async with connect(address, RPC, leads=deposed) as channel, calling(RPC):
                await WorkerServiceStub(channel).StopExecution(request)
        nodes = [process for name, process in cluster.processes.items() if name.startswith("node")]
        refused = [line for node in nodes for line in node.lines() if line["event"] == "command_refused"]
        assert {(line["command"], line["generation"]) for line in refused} >= {("StopExecution", deposed)}, worker
    await until_committed(tmp_path, len(committed(tmp_path)))
    await stop_and_check(cluster, pipeline, tmp_path, generation)


async def workers_of(cluster: Deployment, job: str) -> list[tuple[str, str]]:
    connection = await asyncpg.connect(cluster.postgres.url)
    try:
        rows = await connection.fetch("SELECT id, rpc_address FROM workers WHERE job_id = $1", job)
    finally:
        await connection.close()
    assert rows
    return [(row["id"], row["rpc_address"]) for row in rows]


async def test_one_controller_leads_and_the_others_follow(cluster: Deployment) -> None:
    leader = await cluster.leader()
    roles = [(await cluster.status(name)).get("role") for name in cluster.controllers]
    assert Counter(roles) == {"leader": 1, "follower": 2}, leader
