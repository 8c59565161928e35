"""The fragment engine against plain PySpark (createDataFrame → sql → toArrow), by query and batch size, in one run."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from plain_pyspark import TUNED, PlainPySpark, plain_pyspark
from report import options, show

from penstock.spark import Engine, Fragment, FragmentSpec
from penstock.spark.testing import spark_settings

QUERIES = {
    "project": "SELECT user, price * 0.9 AS price, ts, pmod(hash(user), 128) AS shard FROM bids WHERE price > 10",
    "aggregate": """SELECT user, window(ts, '10 seconds').end AS until, count(*) AS n, max(price) AS top
                    FROM bids GROUP BY 1, 2""",
    "join": "SELECT b.user, b.price, u.name FROM bids AS b JOIN users AS u ON b.user = u.user",
}
COLUMNS = {
    "query": "",
    "rows": ",d",
    "engine_ms": ".2f",
    "pyspark_ms": ".1f",
    "tuned_ms": ".1f",
    "engine_Mrows_s": ".2f",
    "times_pyspark": ".1f",
    "times_tuned": ".1f",
}


def inputs_of(query: str, rows: int) -> dict[str, pa.RecordBatch]:
    random = np.random.default_rng(rows)
    bids = pa.record_batch(
        {
            "user": random.integers(0, 10_000, rows),
            "price": random.random(rows) * 100,
            "ts": pa.array(np.arange(rows).astype("datetime64[us]"), pa.timestamp("us", tz="UTC")),
        }
    )
    if query != "join":
        return {"bids": bids}
    users = pa.record_batch({"user": np.arange(10_000), "name": [f"user {number}" for number in range(10_000)]})
    return {"bids": bids, "users": users.slice(0, max(100, min(rows, 10_000)))}


def median_seconds(times: list[float]) -> float:
    return statistics.median(times[len(times) // 3 :])  # the first third warms up


async def time_engine(fragment: Fragment, inputs: Mapping[str, pa.RecordBatch], seconds: float) -> float:
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 6 or (time.perf_counter() < until and len(times) < 2000):
        started = time.perf_counter()
        await fragment.run(*inputs.values())
        times.append(time.perf_counter() - started)
    return median_seconds(times)


def time_pyspark(run: Callable[[], pa.Table], seconds: float, expected_rows: int) -> float:
    times: list[float] = []
    until = time.perf_counter() + seconds
    while not times or (time.perf_counter() < until and len(times) < 200):
        started = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - started)
        if result.num_rows != expected_rows:
            sys.exit(f"the engine gives {expected_rows} rows, but PySpark {result.num_rows}")
    return median_seconds(times)


async def measure(engine: Engine, peer: PlainPySpark, query: str, rows: int, seconds: float) -> dict[str, Any]:
    sql, inputs = QUERIES[query], inputs_of(query, rows)
    spec = FragmentSpec(sql, {name: batch.schema for name, batch in inputs.items()})
    async with await engine.plan(spec) as fragment:
        ours = await time_engine(fragment, inputs, seconds)
        (result,) = await fragment.run(*inputs.values())
    theirs = time_pyspark(lambda: peer.run(sql, inputs, {}), seconds, result.num_rows)
    tuned = time_pyspark(lambda: peer.run(sql, inputs, TUNED), seconds, result.num_rows)
    return {
        "query": query,
        "rows": rows,
        "engine_ms": ours * 1e3,
        "pyspark_ms": theirs * 1e3,
        "tuned_ms": tuned * 1e3,
        "engine_Mrows_s": rows / ours / 1e6,
        "times_pyspark": theirs / ours,
        "times_tuned": tuned / ours,
    }


def progress(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


async def main() -> None:
    arguments = options(__doc__)
    sizes = (100, 1_000, 1_000_000) if arguments.quick else (100, 1_000, 10_000, 100_000, 1_000_000)
    seconds = 0.4 if arguments.quick else 4.0
    settings = spark_settings(heap=4 << 30)  # plain PySpark runs out of 1 GiB on a million rows
    rows = []
    async with await Engine.start(settings) as engine:
        with plain_pyspark(settings) as peer:
            for query in QUERIES:
                await measure(engine, peer, query, sizes[0], 0)  # code is loaded and compiled: not counted
                for size in sizes:
                    progress(f"{query}, {size:,} rows")
                    rows.append(await measure(engine, peer, query, size, seconds))
    progress("")
    show({"benchmark": "engine", "rows": rows}, COLUMNS, arguments.json)


if __name__ == "__main__":
    asyncio.run(main())
