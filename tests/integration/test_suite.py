"""Every reference query on a real cluster whose workers are killed at any moment: committed files are exactly right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from harness import TERMINAL, Deployment
from reference.cases import CHOSEN, FULL, SEED, groups
from reference.data import dataset
from reference.queries import Query
from suite import MANY_TASKS, check, pipeline_of, write_tables

from penstock.common.testing import eventually
from penstock.spark import Engine

pytestmark = pytest.mark.takes_turns

ROWS: Final = 8_000 if FULL or CHOSEN else 6_000
TOGETHER: Final = 12 if FULL or CHOSEN else 4
KILLS: Final = 5 if FULL or CHOSEN else 2


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[Deployment]:
    """One whose workers take few rows at once and let few wait: there is time to kill them between checkpoints."""
    slow = {"WORKER__BATCH_ROWS": "20", "WORKER__CHANNEL_ROWS": "40"}
    async with Deployment.running(settings={**MANY_TASKS, **slow}) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_tables(dataset(ROWS), folder)
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("queries", groups(TOGETHER), ids=lambda queries: f"{queries[0].name}-and-others")
async def test_results_are_right_though_workers_were_killed(
    cluster: Deployment, engine: Engine, tables: Path, tmp_path: Path, queries: Sequence[Query]
) -> None:
    chance = random.Random(f"{SEED} {queries[0].name}")
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        results = tmp_path / str(runs)
        results.mkdir()
        sql = pipeline_of(queries, tables, results, checkpoint_interval="300ms")
        job_id = (await cluster.create(sql, parallelism=2))["job_id"]
        while kills < KILLS and await _killed(cluster, job_id, chance):
            kills += 1
        await cluster.until_state(job_id, "finished", within_seconds=300)
        await check(queries, dataset(ROWS), results, engine)


async def _killed(cluster: Deployment, job_id: str, chance: random.Random) -> bool:
    """Kills the workers of a job and waits until it starts again; False when it had ended.

    Three times of four that is a moment after a checkpoint of its own, so that it has done something to go on from.
    """
    job = await cluster.until_state(job_id, "running", *TERMINAL, within_seconds=300)
    if chance.random() < 0.75:
        await _has_saved(cluster, job_id, job["generation"])
    await asyncio.sleep(chance.choice((0.0, 0.1, 0.3, 1.0)))
    if not await cluster.kill_workers(job_id):
        return False

    async def gone_on() -> bool:
        now = await cluster.job(job_id)
        return bool(now["generation"] > job["generation"] or now["state"] in TERMINAL)

    await eventually(gone_on, 60)
    return (await cluster.job(job_id))["state"] not in TERMINAL


async def _has_saved(cluster: Deployment, job_id: str, generation: int) -> None:
    async def saved() -> bool:
        if (await cluster.job(job_id))["state"] in TERMINAL:
            return True
        found = (await cluster.client.get(f"/jobs/{job_id}/checkpoints")).json()["data"]
        return any(one["generation"] == generation and one["state"] == "ready" for one in found)

    await eventually(saved, 120)
