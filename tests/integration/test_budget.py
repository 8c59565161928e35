"""A job whose state is several times its budget: its results are right, and its memory does not follow its state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest
from harness import TERMINAL, Deployment
from reference.cases import FULL

pytestmark = pytest.mark.takes_turns

MIB: Final = 1 << 20
BUDGET: Final = (48 if FULL else 16) * MIB
SQL: Final = """
SET checkpoint_interval = '2s';
CREATE TABLE impulse WITH (connector = 'impulse', message_count = '{rows}');
CREATE TABLE totals WITH (connector = 'single_file', path = '{file}', format = 'debezium_json') AS
SELECT count(*) AS keys, sum(n) AS n
FROM (SELECT counter % {keys} AS k, count(*) AS n, max(concat(repeat('x', 1000), CAST(counter AS TEXT))) AS longest
      FROM impulse GROUP BY 1)
WHERE length(longest) > 1000;
"""


@pytest.fixture
async def cluster() -> AsyncIterator[Deployment]:
    settings = {"WORKER__STATE_BUDGET": str(BUDGET), "WORKER__BATCH_ROWS": "4096"}
    async with Deployment.running(slots=1, settings=settings) as deployment:
        yield deployment


@pytest.mark.timeout(900)
async def test_state_of_several_budgets_is_right_and_mostly_in_files(cluster: Deployment, tmp_path: Path) -> None:
    state, resident = await run(cluster, tmp_path / "totals.json", 4.5)
    assert state > 4 * BUDGET
    if FULL:
        more_state, more_resident = await run(cluster, tmp_path / "more.json", 13.5)
        print(f"state {state / MIB:.0f} MiB, resident {resident / MIB:.0f} MiB")
        print(f"state {more_state / MIB:.0f} MiB, resident {more_resident / MIB:.0f} MiB")
        assert more_state > 12 * BUDGET
        assert more_resident - resident < (more_state - state) / 3


async def run(cluster: Deployment, file: Path, budgets: float) -> tuple[int, int]:
    """Runs a job with so much state, a kilobyte for each key; returns the most state and resident memory seen."""
    keys = int(budgets * BUDGET / 1024)
    job_id = (await cluster.create(SQL.format(rows=2 * keys, keys=keys, file=file), parallelism=1))["job_id"]
    await cluster.until_state(job_id, "running", *TERMINAL)
    (worker,) = await cluster.workers(job_id)
    state = resident = 0
    while (await cluster.job(job_id))["state"] not in TERMINAL:
        with suppress(psutil.NoSuchProcess):
            resident = max(resident, worker.memory_info().rss)
        nodes = (await cluster.client.get(f"/jobs/{job_id}/metrics")).json()["nodes"]
        state = max(state, sum(node["state_bytes"] for node in nodes))
        await asyncio.sleep(0.1)
    await cluster.until_state(job_id, "finished")
    check(file, keys)
    return state, resident


def check(file: Path, keys: int) -> None:
    last = json.loads(file.read_text().splitlines()[-1])["after"]
    assert (last["keys"], last["n"]) == (keys, 2 * keys)
