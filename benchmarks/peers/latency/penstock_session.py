"""Penstock in a process of its own, as a worker runs it; `../../latency.py` has the queries and the sink."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from latency import filter_arrivals, window_arrivals
from local_job import run

from penstock.spark import Engine
from penstock.spark.testing import spark_settings


async def answer(engine: Engine, job: dict[str, Any]) -> dict[str, object]:
    """What is said of a job."""
    started = time.perf_counter()
    rate, count = job["rate"], job["count"]
    try:
        if job["width_ms"] is None:
            arrivals = await filter_arrivals(engine, rate, count)
        else:
            arrivals = await window_arrivals(engine, rate, count, job["width_ms"], job["keys"])
    except SystemExit as reason:
        return {"refused": str(reason)}
    await asyncio.to_thread(arrivals.write, Path(job["into"]))
    return {"seconds": time.perf_counter() - started}


async def serve(answers: TextIO) -> None:
    async with await Engine.start(spark_settings()) as engine:
        print(json.dumps("of this folder"), file=answers)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await answer(engine, json.loads(line))), file=answers)


if __name__ == "__main__":
    said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    run(serve(said))
