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


async def test_slow_sink_holds_an_unbounded_source_back_with_flat_memory() -> None:
    async with Deployment.running() as cluster:
        job_id = (await cluster.create(SLOW))["job_id"]
        await cluster.until_state(job_id, "running")
        await cluster.until_rows(job_id, 1000)
        node = psutil.Process(cluster.processes["node1"].pid)
        workers = [child for child in node.children() if "penstock.worker" in " ".join(child.cmdline())]

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
