"""Stateless pipelines at parallelism 2: nexmark through a query into nothing, and JSON lines from file to file.

The second is also done by Spark Structured Streaming (plain PySpark, in a JVM of its own) on the same file.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from local_job import compiled, run, run_job
from plain_pyspark import PlainPySpark, plain_pyspark
from report import options, show

from penstock.connectors.formats.json_encoder import JsonEncoder
from penstock.spark import Engine
from penstock.spark.testing import spark_settings

PARALLELISM = 2
COLUMNS = {"pipeline": "", "engine": "", "events": ",d", "seconds": ".2f", "Mevents_s": ".2f"}

NEXMARK_SQL = """
CREATE TABLE nexmark WITH (connector = 'nexmark', events = '{events}');
CREATE TABLE nothing (auction BIGINT, bidder BIGINT, euros DOUBLE) WITH (connector = 'blackhole');
INSERT INTO nothing
SELECT bid.auction, bid.bidder, CAST(bid.price AS DOUBLE) * 0.908 FROM nexmark
WHERE bid.price > 100 AND bid.auction % 3 = 0;
"""
COSTS = "SELECT id, upper(user) AS user, cost * 2 AS cost FROM visits WHERE status = 200 AND cost > 20"
FILES_SQL = f"""
CREATE TABLE visits (id BIGINT, user TEXT, path TEXT, status BIGINT, cost DOUBLE)
WITH (connector = 'single_file', path = '{{file}}');
CREATE TABLE costs (id BIGINT, user TEXT, cost DOUBLE)
WITH (connector = 'single_file', type = 'sink', path = '{{result}}');
INSERT INTO costs {COSTS};
"""
PEER_SCHEMA = "id BIGINT, user STRING, path STRING, status BIGINT, cost DOUBLE"


def write_visits(file: Path, rows: int) -> None:
    random = np.random.default_rng(rows)
    numbers = np.arange(rows)
    batch = pa.record_batch(
        {
            "id": numbers,
            "user": [f"user-{number}" for number in random.integers(0, 10_000, rows)],
            "path": [f"/articles/{number}/comments" for number in random.integers(0, 1000, rows)],
            "status": random.choice([200, 301, 404], rows, p=[0.8, 0.1, 0.1]),
            "cost": random.integers(0, 10_000, rows) / 100,
        }
    )
    file.write_bytes(JsonEncoder(batch.schema).encode(batch))


def count_lines(files: list[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


async def median_seconds(work: Callable[[], Awaitable[None]], times: int) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


async def run_nexmark(engine: Engine, events: int) -> None:
    await run_job(engine, await compiled(engine, NEXMARK_SQL.format(events=events)), PARALLELISM)


async def run_files(engine: Engine, file: Path, result: Path) -> None:
    await run_job(engine, await compiled(engine, FILES_SQL.format(file=file, result=result)), PARALLELISM)


def run_peer(peer: PlainPySpark, folder: Path, result: Path) -> None:
    """Each time with a checkpoint of its own, which makes it read the file again."""
    session = peer.session
    session.readStream.schema(PEER_SCHEMA).json(str(folder)).createOrReplaceTempView("visits")
    with tempfile.TemporaryDirectory() as checkpoint:
        written = session.sql(COSTS).writeStream.format("json").option("checkpointLocation", checkpoint)
        started = written.trigger(availableNow=True).start(str(result))
        started.awaitTermination()


def figures(pipeline: str, engine: str, events: int, seconds: float) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "engine": engine,
        "events": events,
        "seconds": seconds,
        "Mevents_s": events / seconds / 1e6,
    }


async def compare_files(engine: Engine, peer: PlainPySpark, rows: int, times: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        visits = folder / "visits"
        visits.mkdir()
        await asyncio.to_thread(write_visits, visits / "visits.json", rows)
        results = (folder / f"peer-{number}" for number in count())

        async def ours() -> None:
            await run_files(engine, visits / "visits.json", folder / "result.json")

        async def theirs() -> None:
            run_peer(peer, visits, next(results))  # in this thread, to which py4j ties its connection

        for _ in range(2):  # code is loaded and compiled: not counted
            await ours()
            await theirs()
        expected = count_lines([folder / "result.json"])
        found = count_lines(list((folder / "peer-0").glob("part-*.json")))
        if expected != found or not expected:
            sys.exit(f"the engine writes {expected} rows, but Structured Streaming {found}")
        return await median_seconds(ours, times), await median_seconds(theirs, times)


async def main() -> None:
    arguments = options(__doc__)
    events = 5_000_000 if arguments.quick else 20_000_000
    lines = 500_000 if arguments.quick else 3_000_000
    times = 1 if arguments.quick else 3
    settings = spark_settings()
    async with await Engine.start(settings) as engine:
        await run_nexmark(engine, events)  # not counted
        nexmark = await median_seconds(lambda: run_nexmark(engine, events), times)
        with plain_pyspark(settings) as peer:
            ours, theirs = await compare_files(engine, peer, lines, times)
    rows = [
        figures("nexmark → blackhole", "penstock", events, nexmark),
        figures("file → file", "penstock", lines, ours),
        figures("file → file", "structured streaming", lines, theirs),
    ]
    result = {"benchmark": "stateless", "rows": rows, "times_structured_streaming": theirs / ours}
    show(result, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
