"""The reference queries over several nodes, whose workers send each other rows: the results are the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from harness import Deployment
from reference.cases import CHOSEN, FULL, groups
from reference.data import dataset
from reference.queries import Query
from suite import MANY_TASKS, check, pipeline_of, write_tables

from penstock.spark import Engine

pytestmark = pytest.mark.takes_turns

ROWS: Final = 4000
ALL: Final = bool(FULL or CHOSEN)

if ALL:

    @pytest.fixture(scope="module")
    async def cluster() -> AsyncIterator[Deployment]:
        """Three nodes, each with one worker of a job of parallelism 6."""
        async with Deployment.running(nodes=3, slots=2, settings=MANY_TASKS) as deployment:
            yield deployment


@pytest.mark.timeout(600)
@pytest.mark.parametrize("queries", groups(12 if ALL else 4), ids=lambda queries: f"{queries[0].name}-and-others")
async def test_results_are_the_same_over_several_nodes(
    cluster: Deployment, engine: Engine, tmp_path: Path, queries: Sequence[Query]
) -> None:
    write_tables(dataset(ROWS), tmp_path)
    results = tmp_path / "results"
    results.mkdir()
    sql = pipeline_of(queries, tmp_path, results, checkpoint_interval="1s")
    job_id = (await cluster.create(sql, parallelism=6 if ALL else 4))["job_id"]
    job = await cluster.until_state(job_id, "running", "finished", within_seconds=300)
    assert job["state"] == "finished" or len(job["workers"]) == (3 if ALL else 2)
    await cluster.until_state(job_id, "finished", within_seconds=300)
    await check(queries, dataset(ROWS), results, engine)
