"""Jobs over several nodes: they spread, wait for slots, leave a node that is drained and survive one that is killed.

Each row is committed exactly once, whatever happens. Jobs with a shuffle do the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from harness import Deployment
from reference.cases import FULL

from penstock.common.testing import eventually

pytestmark = pytest.mark.takes_turns

ROWS: Final = 4000
UNBOUNDED: Final = """
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '1000');
CREATE TABLE nowhere (counter BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO nowhere SELECT counter FROM impulse WHERE counter % 2 = 0;
"""
SOURCE: Final = f"""
SET checkpoint_interval = '500ms';
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '400', message_count = '{ROWS}');
CREATE TABLE sink (counter BIGINT, n BIGINT) WITH (connector = 'filesystem', type = 'sink', path = '%s');
"""
FORWARD: Final = SOURCE + "INSERT INTO sink SELECT counter, 1 FROM impulse WHERE counter >= 0;"
SHUFFLED: Final = (
    SOURCE + "INSERT INTO sink SELECT counter, count(*) FROM impulse GROUP BY 1, tumble(INTERVAL '1 second');"
)
QUERIES: Final = [
    *([pytest.param(FORWARD, id="forward")] if FULL else []),
    pytest.param(SHUFFLED, id="shuffled"),
]


@pytest.fixture(scope="module", autouse=True)
async def two_nodes(cluster: Deployment) -> AsyncIterator[None]:
    """The third node stays for all tests of this module: one that has left is remembered for a while."""
    yield
    if "node3" in cluster.processes:
        await cluster.processes.pop("node3").stop()
    await cluster.until_ready(2)


async def add_third(cluster: Deployment) -> None:
    if "node3" not in cluster.processes:
        await cluster.start_node("node3")
        await cluster.until_ready(3)


def committed(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()]


def check(folder: Path) -> None:
    """Every row is there, once."""
    rows = committed(folder)
    assert Counter(row["counter"] for row in rows) == Counter(range(ROWS))
    assert {row["n"] for row in rows} == {1}


async def until_committed(folder: Path) -> None:
    before = len(committed(folder))

    async def has_grown() -> bool:
        return len(committed(folder)) > before

    await eventually(has_grown, 60)


async def nodes_of(cluster: Deployment, job_id: str) -> set[str]:
    return {worker["node_id"] for worker in (await cluster.job(job_id))["workers"]}


async def until_moved(cluster: Deployment, job_id: str, generation: int) -> dict[str, Any]:
    """The job, once a later generation of it runs, and has said where."""
    found: dict[str, Any] = {}

    async def is_moved() -> bool:
        nonlocal found
        found = await cluster.job(job_id)
        return bool(found["state"] == "running" and found["generation"] > generation and found["workers"])

    await eventually(is_moved, 120)
    return found


async def test_job_waits_for_slots_and_goes_on_when_a_node_joins(cluster: Deployment) -> None:
    async with cluster.pipeline(UNBOUNDED, parallelism=4) as running:
        await cluster.until_state(running["job_id"], "running")
        assert len(await nodes_of(cluster, running["job_id"])) == 2
        async with cluster.pipeline(UNBOUNDED, parallelism=2) as waiting:
            job_id = waiting["job_id"]

            async def says_why() -> bool:
                events = (await cluster.client.get(f"/jobs/{job_id}/events")).json()["data"]
                return any(event["message"] == "the job needs 2 slots and 0 of 4 are free" for event in events)

            await eventually(says_why, 60)
            assert (await cluster.job(job_id))["state"] == "scheduling"
            await add_third(cluster)
            await cluster.until_state(job_id, "running")


@pytest.mark.parametrize("query", QUERIES)
async def test_job_leaves_a_drained_node_with_nothing_lost_or_repeated(
    cluster: Deployment, tmp_path: Path, query: str
) -> None:
    await add_third(cluster)
    async with cluster.pipeline(query % tmp_path, parallelism=3) as pipeline:
        job_id = pipeline["job_id"]
        await until_committed(tmp_path)
        job = await cluster.job(job_id)
        assert len({worker["node_id"] for worker in job["workers"]}) == 3
        node = f"/nodes/{job['workers'][0]['node_id']}"
        answer = await cluster.client.patch(node, json={"drain": True})
        assert answer.status_code == 200, answer.text
        try:

            async def is_drained() -> bool:
                found = (await cluster.client.get(node)).json()
                return bool(found["state"] == "drained" and not found["jobs"] and found["slots_free"] == 0)

            await eventually(is_drained, 60)
            moved = await until_moved(cluster, job_id, job["generation"])
            assert job["workers"][0]["node_id"] not in {worker["node_id"] for worker in moved["workers"]}
            assert sum(worker["tasks"] for worker in moved["workers"]) == moved["tasks"]
            await cluster.until_state(job_id, "finished")
            assert (await cluster.client.get(node)).json()["state"] == "drained"
        finally:
            await cluster.client.patch(node, json={"drain": False})

        async def is_back() -> bool:
            return bool((await cluster.client.get(node)).json()["slots_free"] == 2)

        await eventually(is_back)
    check(tmp_path)


@pytest.mark.parametrize("query", QUERIES)
async def test_node_that_is_killed_with_its_workers_costs_and_repeats_no_row(
    cluster: Deployment, tmp_path: Path, query: str
) -> None:
    await add_third(cluster)
    async with cluster.pipeline(query % tmp_path, parallelism=6) as pipeline:
        job_id = pipeline["job_id"]
        await until_committed(tmp_path)
        job = await cluster.job(job_id)
        assert [worker["tasks"] for worker in job["workers"]] == [job["tasks"] // 3] * 3
        killed = cluster.processes.pop("node3")
        workers = psutil.Process(killed.pid).children(recursive=True)
        await killed.kill()
        for worker in workers:
            if worker.is_running():
                worker.kill()
        # What is left of the cluster is smaller than the job, which shares it.
        moved = await until_moved(cluster, job_id, job["generation"])
        assert [worker["tasks"] for worker in moved["workers"]] == [moved["tasks"] // 2] * 2
        await cluster.until_state(job_id, "finished")
    check(tmp_path)
