"""From starting an engine to its first result, with the class cache and without it, in turn, in one run."""

from __future__ import annotations

import asyncio
import statistics
import time

import pyarrow as pa
from report import options, show

from penstock.spark import Engine, FragmentSpec
from penstock.spark.launcher import LaunchPlan
from penstock.spark.testing import spark_settings

BATCH = pa.record_batch({"k": [1, 2, 1], "v": [1.0, 2.0, 3.0]})


async def first_result(class_cache: bool) -> float:
    started = time.perf_counter()
    async with await Engine.start(spark_settings(class_cache=class_cache)) as engine:
        spec = FragmentSpec("SELECT k, count(*) AS n, avg(v) AS v FROM rows GROUP BY k", {"rows": BATCH.schema})
        async with await engine.plan(spec) as fragment:
            await fragment.run(BATCH)
            return time.perf_counter() - started


async def main() -> None:
    arguments = options(__doc__)
    await Engine.make_class_cache(LaunchPlan.prepare(spark_settings()))
    with_cache, without = [], []
    for _ in range(2 if arguments.quick else 5):
        without.append(await first_result(class_cache=False))
        with_cache.append(await first_result(class_cache=True))
    fast, slow = statistics.median(with_cache), statistics.median(without)
    rows = [{"class_cache": "yes", "seconds": fast}, {"class_cache": "no", "seconds": slow}]
    result = {"benchmark": "startup", "rows": rows, "ratio": fast / slow}
    show(result, {"class_cache": "", "seconds": ".2f"}, arguments.json)


if __name__ == "__main__":
    asyncio.run(main())
