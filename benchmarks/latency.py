"""How long rows take to be written. Beside peers: `python -m peers.latency`, which asks the same of this module.

`filter`: impulse → filter → a sink that looks at the clock, at 1,000 and at 10,000 events a second, parallelism 1.

`tumble`: impulse → count by 1,000 keys in windows of a second (or 100 keys and 100 ms), with a shuffle at parallelism
2 → the same sink, at 10,000 events a second.

The event times of impulse are those at which its rows are due; `latencies.py` says what is made of them. So what the
source's ticks of 5 ms take is part of every latency. The first second of each run is not counted, nor are the last
windows, which the end of the stream lets out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from latencies import Arrivals, quantiles, row_latencies_ms, window_latencies_ms
from local_job import compiled, run, run_job
from report import options, show

from penstock.connectors.base import TIMESTAMP_COLUMN, Connector, Sink, TableSpec
from penstock.connectors.blackhole import Blackhole
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.spark.testing import spark_settings

LEAD_US: Final = 1_000_000
FILTER: Final = """
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '{rate}', message_count = '{count}');
CREATE TABLE nothing (counter BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT counter FROM ticks WHERE counter % 10 <> 3;
"""
WINDOWS: Final = """
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '{rate}', message_count = '{count}');
CREATE TABLE nothing (k BIGINT, n BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT k, n FROM (
  SELECT counter % {keys} AS k, count(*) AS n, tumble(INTERVAL '{width_ms} milliseconds') AS span
  FROM ticks GROUP BY counter % {keys}, span
);
"""
COLUMNS: Final = {
    "query": "",
    "events_s": ",d",
    "samples": ",d",
    "p50_ms": ".2f",
    "p99_ms": ".2f",
    "p99.9_ms": ".2f",
}


class Clocked(Blackhole):
    """A black hole that looks at the clock when rows fall into it."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, pa.RecordBatch]] = []

    def open_sink(self, spec: TableSpec) -> Sink:
        return _ClockedSink(self.batches)

    def columns(self, *names: str) -> list[pa.ChunkedArray]:
        return [pa.chunked_array([batch.column(name) for _, batch in self.batches]) for name in names]

    def at_us(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """When each row came."""
        times, counts = zip(*((at, batch.num_rows) for at, batch in self.batches), strict=True)
        return np.repeat(np.array(times, np.int64), counts)


class _ClockedSink:
    def __init__(self, batches: list[tuple[int, pa.RecordBatch]]) -> None:
        self._batches = batches

    async def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append((time.time_ns() // 1000, batch))

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return


async def filter_arrivals(engine: Engine, rate: int, count: int) -> Arrivals:
    """The rows of `filter`, nine of ten events."""
    clocked = await _ran(engine, FILTER.format(rate=rate, count=count), 1)
    (due,) = clocked.columns(TIMESTAMP_COLUMN)
    return Arrivals(_int64s(due), clocked.at_us(), np.ones(len(due), np.int64))


async def window_arrivals(engine: Engine, rate: int, count: int, width_ms: int, keys: int) -> Arrivals:
    """The rows of `tumble`. Their event times are a microsecond before their windows' ends."""
    clocked = await _ran(engine, WINDOWS.format(rate=rate, count=count, keys=keys, width_ms=width_ms), 2)
    last, events = clocked.columns(TIMESTAMP_COLUMN, "n")
    return Arrivals(_int64s(last) + 1, clocked.at_us(), _int64s(events))


async def _ran(engine: Engine, sql: str, parallelism: int) -> Clocked:
    clocked = Clocked()
    connectors: Mapping[str, Connector] = {**CONNECTORS, clocked.name: clocked}
    await run_job(engine, await compiled(engine, sql), parallelism, connectors)
    return clocked


def _int64s(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: np.ndarray[Any, np.dtype[np.int64]] = column.cast(pa.int64()).to_numpy()
    return numbers


async def measure_filter(engine: Engine, rate: int, seconds: int) -> dict[str, Any]:
    arrivals = await filter_arrivals(engine, rate, rate * seconds)
    found = row_latencies_ms(arrivals, rate * seconds * 9 // 10, LEAD_US)
    return {"query": "filter", "events_s": rate, "samples": len(found), **quantiles(found)}


async def measure_windows(engine: Engine, rate: int, seconds: int, width_ms: int, keys: int) -> dict[str, Any]:
    arrivals = await window_arrivals(engine, rate, rate * seconds, width_ms, keys)
    found = window_latencies_ms(arrivals, width_ms * 1000, rate * width_ms // 1000, LEAD_US)
    return {"query": f"tumble {width_ms} ms", "events_s": rate, "samples": len(found), **quantiles(found)}


async def main() -> None:
    arguments = options(__doc__)
    seconds = 10 if arguments.quick else 60
    async with await Engine.start(spark_settings()) as engine:
        await measure_filter(engine, 1000, 3)  # code is loaded and compiled: not counted
        rows = [await measure_filter(engine, rate, seconds) for rate in (1000, 10_000)]
        await measure_windows(engine, 10_000, 8, 100, 100)
        for width_ms, keys in ((1000, 1000), (100, 100)):
            rows.append(await measure_windows(engine, 10_000, seconds, width_ms, keys))
    show({"benchmark": "latency", "rows": rows}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
