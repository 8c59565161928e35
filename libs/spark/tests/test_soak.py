"""Many fragments at once, for long: no error, and no memory that grows."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

import numpy as np
import psutil
import pyarrow as pa
import pytest

from penstock.common.testing import eventually
from penstock.spark import Engine, Fragment, FragmentSpec
from penstock.spark.testing import spark_settings

SECONDS = 60.0 if os.environ.get("PENSTOCK_TEST_FULL") else 8.0
LEAST_RUNS = int(3 * SECONDS)  # of each fragment, however slow the machine
MIB = 1 << 20

QUERIES = (
    "SELECT k, v * 2 AS v, upper(s) AS s FROM a WHERE v > 0.1",
    "SELECT k, count(*) AS n, sum(v) AS v, max(s) AS s FROM a GROUP BY k",
    "SELECT k, a.s, b.v FROM a JOIN b USING (k) WHERE a.v < 0.02 AND b.v < 0.02",
    "SELECT k, s, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM a ORDER BY s LIMIT 100",
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes in use when nothing runs."""

    jvm_heap: int
    jvm_direct: int
    arrow: int
    spark: int
    python: int

    @classmethod
    async def now(cls, engine: Engine) -> Usage:
        status = await engine.status(collect=True)
        python = psutil.Process().memory_info().rss
        return cls(status.heap_used, status.direct_reserved, status.arrow_allocated, status.spark_execution, python)


def batch_of(rows: int, seed: int) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    keys = random.integers(0, 500, rows)
    return pa.record_batch(
        {"k": keys, "v": random.random(rows), "s": pa.array([f"name {key}" for key in keys], pa.string())}
    )


async def run_until(fragment: Fragment, until: float, batches: list[pa.RecordBatch]) -> None:
    runs = 0
    while time.monotonic() < until or runs < LEAST_RUNS:
        await fragment.run(batches[runs % len(batches)], batches[(runs + 1) % len(batches)])
        runs += 1
        if runs % 100 == 0:  # a run that fails or is cut off must leave nothing behind either
            await cut_off(fragment, batches)


async def cut_off(fragment: Fragment, batches: list[pa.RecordBatch]) -> None:
    task = asyncio.create_task(fragment.run(batches[-1], batches[-1]))
    await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait((task,))


@pytest.mark.timeout(SECONDS * 3 + 120)
async def test_eight_fragments_at_once_keep_memory_flat() -> None:
    batches = [batch_of(rows, rows) for rows in (0, 1, 100, 5_000, 40_000, 1_000)]
    async with await Engine.start(spark_settings()) as engine:
        spec = [
            FragmentSpec(QUERIES[index % 4], {"a": batches[0].schema, "b": batches[0].schema}, None, ("k",), 3)
            for index in range(8)
        ]
        fragments = [await engine.plan(one) for one in spec]

        async def run_all(seconds: float) -> None:
            until = time.monotonic() + seconds
            await asyncio.gather(*(run_until(fragment, until, batches) for fragment in fragments))

        await run_all(4)
        before = await Usage.now(engine)
        await run_all(SECONDS)
        after = await Usage.now(engine)
        assert after.jvm_heap - before.jvm_heap < 24 * MIB, (before, after)
        assert after.jvm_direct - before.jvm_direct < 32 * MIB, (before, after)
        assert after.python - before.python < 48 * MIB, (before, after)
        assert after.spark == 0
        for fragment in fragments:
            await fragment.close()

        async def is_free() -> bool:
            status = await engine.status()
            return status.connections == 1 and status.arrow_allocated == 0

        await eventually(is_free)
