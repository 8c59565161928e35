"""Python functions: what a call costs beside plain PySpark, and how many rows a second wait for an async one.

`arrow`, `scalar`: numbers through a function of arrays, or of one value, at parallelism 1: impulse → function →
blackhole. Plain PySpark, in a JVM of its own in the same run, does it in one job over all rows, in one partition: with
rows that come from Python and go back to it, as those of Penstock do (createDataFrame → function → toArrow), and with
rows that never leave Spark (range → function → noop). The cost is told beside the first.

`async`: a function that takes 50 ms for each row, with 1,000 calls at once, in one subtask. Its rows a second are those
between the first result and the last.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from local_job import compiled, run, run_job
from plain_pyspark import PlainPySpark, plain_pyspark
from report import options, show

from penstock.common.storage import open_storage
from penstock.compiler.compile import QueryFunctions
from penstock.compiler.udfs import Udfs
from penstock.connectors.base import Sink, TableSpec
from penstock.connectors.blackhole import Blackhole
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.spark.testing import spark_settings

SOURCES: Final = {
    "arrow": """
import pyarrow as pa
import pyarrow.compute as pc

def f(n: pa.Int64Array) -> pa.Int64Array:
    return pc.add(pc.multiply(n, 3), 1)
""",
    "scalar": """
def f(n: int) -> int:
    return n * 3 + 1
""",
}
SQL: Final = """
CREATE FUNCTION f LANGUAGE python AS $${source}$$;
CREATE TABLE numbers WITH (connector = 'impulse', message_count = '{rows}');
CREATE TABLE nothing (n BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT f(counter) FROM numbers;
"""
ASYNC_SQL: Final = """
CREATE FUNCTION f LANGUAGE python WITH (in_flight = 1000, ordered = {ordered}) AS $$
import asyncio

async def f(n: int) -> int:
    await asyncio.sleep(0.05)
    return n * 3 + 1
$$;
CREATE TABLE numbers WITH (connector = 'impulse', message_count = '{rows}');
CREATE TABLE nothing (n BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT f(counter) FROM numbers;
"""
AIMED: Final = "arrow"
AIM: Final = 1.3
LOCAL_ROWS: Final = ("spark.sql.execution.arrow.localRelationThreshold", "0")  # as a careful user would set it
COLUMNS: Final = {"function": "", "engine": "", "rows": ",d", "seconds": ".2f", "krows_s": ",.1f"}


class Clocked(Blackhole):
    """A black hole that notes when rows fell into it."""

    def __init__(self) -> None:
        self.rows = 0
        self.first_at = self.last_at = 0.0

    def open_sink(self, spec: TableSpec) -> Sink:
        return _ClockedSink(self)


class _ClockedSink:
    def __init__(self, clocked: Clocked) -> None:
        self._clocked = clocked

    async def write(self, batch: pa.RecordBatch) -> None:
        clocked = self._clocked
        clocked.last_at = time.perf_counter()
        clocked.first_at = clocked.first_at or clocked.last_at
        clocked.rows += batch.num_rows

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return


def figures(function: str, engine: str, rows: int, seconds: float) -> dict[str, Any]:
    return {
        "function": function,
        "engine": engine,
        "rows": rows,
        "seconds": seconds,
        "krows_s": rows / seconds / 1e3,
    }


async def median_seconds(work: Callable[[], Awaitable[None]], times: int) -> float:
    """The first time, in which code is loaded and compiled, is not counted."""
    taken = []
    for _ in range(times + 1):
        started = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


def peer_function(function: str) -> Any:
    from pyspark.sql.types import LongType
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    names: dict[str, Any] = {"__name__": "__main__"}  # what is there is sent by value
    exec(SOURCES[function], names)
    kinds = {"arrow": PythonEvalType.SQL_SCALAR_ARROW_UDF, "scalar": PythonEvalType.SQL_ARROW_BATCHED_UDF}
    return UserDefinedFunction(names["f"], LongType(), "f", kinds[function])


def run_inside(peer: PlainPySpark, function: str, rows: int) -> None:
    numbers = peer.session.range(0, rows, 1, 1)
    numbers.select(peer_function(function)(numbers.id)).write.format("noop").mode("overwrite").save()


def run_through(peer: PlainPySpark, function: str, rows: int) -> None:
    numbers = peer.session.createDataFrame(pa.table({"id": np.arange(rows)})).coalesce(1)
    found = numbers.select(peer_function(function)(numbers.id)).toArrow()
    if found.num_rows != rows:
        raise SystemExit(f"of {rows} rows PySpark gave {found.num_rows}")


async def measure(
    engine: Engine, peer: PlainPySpark, functions: QueryFunctions, function: str, rows: int, times: int
) -> list[dict[str, Any]]:
    program = await compiled(engine, SQL.format(source=SOURCES[function], rows=rows), functions)

    async def ours() -> None:
        await run_job(engine, program, 1)

    # The peer runs in this thread, to which py4j ties its connection.
    async def through() -> None:
        run_through(peer, function, rows)

    async def inside() -> None:
        run_inside(peer, function, rows)

    peer.session.conf.set(*LOCAL_ROWS)
    return [
        figures(function, "penstock", rows, await median_seconds(ours, times)),
        figures(function, "pyspark", rows, await median_seconds(through, times)),
        figures(function, "pyspark inside", rows, await median_seconds(inside, times)),
    ]


async def measure_async(engine: Engine, functions: QueryFunctions, rows: int, ordered: bool) -> dict[str, Any]:
    sql = ASYNC_SQL.format(rows=rows, ordered=str(ordered).lower())
    clocked = Clocked()
    connectors = {**CONNECTORS, clocked.name: clocked}
    await run_job(engine, await compiled(engine, sql, functions), 1, connectors)
    if clocked.rows != rows:
        raise SystemExit(f"of {rows} rows {clocked.rows} came back")
    name = "async, in order" if ordered else "async, in any order"
    return figures(name, "penstock", rows, clocked.last_at - clocked.first_at)


async def main() -> None:
    arguments = options(__doc__)
    rows, times = (1_000_000, 1) if arguments.quick else (3_000_000, 5)
    awaited = 100_000 if arguments.quick else 500_000
    settings = spark_settings(heap=4 << 30)  # plain PySpark runs out of 1 GiB on a million rows
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else the peer takes whatever is on the path
    with tempfile.TemporaryDirectory() as folder:
        functions = QueryFunctions(Udfs(open_storage(folder)))
        async with await Engine.start(settings) as engine:
            with plain_pyspark(settings) as peer:
                found = [
                    one for function in SOURCES for one in await measure(engine, peer, functions, function, rows, times)
                ]
            found += [await measure_async(engine, functions, awaited, ordered) for ordered in (True, False)]
    seconds = {(one["function"], one["engine"]): one["seconds"] for one in found}
    ratios = {
        f"cost of {function} beside the same function in plain PySpark": seconds[function, "penstock"]
        / seconds[function, "pyspark"]
        for function in SOURCES
    }
    aim = {"aim": f"{AIM:g} at most, of {AIMED}"}
    show({"benchmark": "udfs", "rows": found, **ratios, **aim}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
