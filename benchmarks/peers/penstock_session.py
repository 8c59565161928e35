"""Penstock in a process of its own, as a worker runs it: a job a line, each compiled, planned and run to its end.

Reads JSON objects with `sql`, answers each with its `seconds`, which begin before the query is compiled.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from typing import TextIO

from local_job import compiled, run, run_job
from peers.events import PARALLELISM

from penstock.common.storage import open_storage
from penstock.compiler.compile import QueryFunctions
from penstock.compiler.udfs import Udfs
from penstock.spark import Engine
from penstock.spark.testing import spark_settings


async def answer(engine: Engine, functions: QueryFunctions, sql: str) -> dict[str, object]:
    """What is said of a job."""
    started = time.perf_counter()
    try:
        await run_job(engine, await compiled(engine, sql, functions), PARALLELISM)
    except SystemExit as reason:
        return {"refused": str(reason)}
    return {"seconds": time.perf_counter() - started}


async def serve(answers: TextIO) -> None:
    with tempfile.TemporaryDirectory() as folder:
        functions = QueryFunctions(Udfs(open_storage(folder)))
        async with await Engine.start(spark_settings()) as engine:
            print(json.dumps("of this folder"), file=answers)
            while line := await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps(await answer(engine, functions, json.loads(line)["sql"])), file=answers)


if __name__ == "__main__":
    said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    run(serve(said))
