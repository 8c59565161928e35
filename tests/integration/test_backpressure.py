"""A slow sink slows its source: nothing is lost, nothing piles up."""

from __future__ import annotations

import asyncio
import os
import time

import psutil
from harness import Deployment

SECONDS = 60.0 if os.environ.get("PENSTOCK_TEST_FULL") else 12.0
SLOW = """
CREATE TABLE impulse WITH (connector = 'impulse');
CREATE TABLE slow (counter BIGINT) WITH (connector = 'blackhole', rows_per_second = '1000', type = 'sink');
INSERT INTO slow SELECT counter FROM impulse;
"""
MEGABYTE = 1 << 20
WORKER_ID = "PENSTOCK__WORKER__ID"


async def test_slow_sink_holds_an_unbounded_source_back_with_flat_memory(cluster: Deployment) -> None:
    async with cluster.pipeline(SLOW) as pipeline:
        job_id = pipeline["job_id"]
        job = await cluster.until_state(job_id, "running")
        await cluster.until_rows(job_id, 1000)
        workers = worker_processes(cluster, [worker["id"] for worker in job["workers"]])

        def resident() -> int:
            return sum(worker.memory_info().rss for worker in workers)

        await asyncio.sleep(SECONDS / 4)  # the buffers fill
        filled, rows, started_at = resident(), await cluster.rows_out(job_id), time.monotonic()
        await asyncio.sleep(SECONDS * 3 / 4)
        rate = (await cluster.rows_out(job_id) - rows) / (time.monotonic() - started_at)
        assert 700 < rate < 1300
        assert resident() - filled < 60 * MEGABYTE
        metrics = (await cluster.client.get(f"/jobs/{job_id}/metrics")).json()
        subtasks = [subtask for part in metrics["nodes"] for subtask in part["subtasks"]]
        assert max(subtask["backpressure"] for subtask in subtasks) > 0.9
        assert all(subtask["rows_in"] - subtask["rows_out"] < 200_000 for subtask in subtasks)


def worker_processes(cluster: Deployment, ids: list[str]) -> list[psutil.Process]:
    """The processes of a job's workers, with their JVMs."""
    nodes = [psutil.Process(cluster.processes[name].pid) for name in ("node1", "node2")]
    workers = [child for node in nodes for child in node.children() if child.environ().get(WORKER_ID) in ids]
    assert len(workers) == len(ids)
    return [process for worker in workers for process in (worker, *worker.children(recursive=True))]
