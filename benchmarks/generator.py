"""Nexmark's queries on the generator's events, at parallelism 2, into nothing: what they cost without JSON to read.

CPU seconds are those of both processes, Python and the JVM, for a million events.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

import psutil
from local_job import compiled, run, run_job
from nexmark.queries import NexmarkQuery, generator_tables, nexmark_queries, result_table
from report import options, show

from penstock.common.program import Program
from penstock.spark import Engine
from penstock.spark.testing import spark_settings

PARALLELISM: Final = 2
EVENTS: Final = 10_000_000
NUMBERS: Final = (0, 1, 2, 5, 7, 8, 11, 12)
COLUMNS: Final = {"query": "", "events": ",d", "seconds": ".2f", "Mevents_s": ".2f", "cpu_s_per_M": ".2f"}


async def program_of(engine: Engine, query: NexmarkQuery, events: int) -> Program:
    tables = generator_tables({"events": str(events)})
    return await compiled(engine, tables + result_table(query) + query.sql)


def cpu_seconds(engine: Engine) -> float:
    times = [process.cpu_times() for process in (psutil.Process(), psutil.Process(engine.pid))]
    return float(sum(time.user + time.system for time in times))


async def measured(engine: Engine, query: NexmarkQuery, events: int, warming: int, times: int) -> dict[str, Any]:
    program = await program_of(engine, query, events)
    for _ in range(warming):
        await run_job(engine, program, PARALLELISM)
    taken, cpu = [], []
    for _ in range(times):
        started, cpu_before = time.perf_counter(), cpu_seconds(engine)
        await run_job(engine, program, PARALLELISM)
        taken.append(time.perf_counter() - started)
        cpu.append(cpu_seconds(engine) - cpu_before)
    seconds = statistics.median(taken)
    return {
        "query": str(query),
        "events": events,
        "seconds": seconds,
        "Mevents_s": events / seconds / 1e6,
        "cpu_s_per_M": statistics.median(cpu) / events * 1e6,
    }


async def main() -> None:
    arguments = options(__doc__)
    events, warming, times = (1_000_000, 1, 1) if arguments.quick else (EVENTS, 2, 3)
    async with await Engine.start(spark_settings()) as engine:
        queries = [query for query in nexmark_queries() if query.number in NUMBERS]
        rows = [await measured(engine, query, events, warming, times) for query in queries]
    show({"benchmark": "generator", "rows": rows}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
