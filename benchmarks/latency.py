"""How long rows take to be written.

`filter`: from a row's event time to its write, at 1,000 events a second: impulse → filter → blackhole.

`tumble`: from when a window's result is possible to when it is there, at 10,000 events a second: impulse → count by
1,000 keys in windows of a second (or 100 keys and 100 ms), with a shuffle at parallelism 2 → a sink that looks at the
clock. The event times of impulse are those at which its rows are due. A window's latency is the wall-clock time at
which the last of its rows came to the sink, less the time at which the event was due that let the watermark, which is
one second behind, pass the window's end: that end and a second. So what the source's ticks of 5 ms take is part of it.
The last windows, which the end of the stream lets out, are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from local_job import compiled, run, run_job
from report import options, show

from penstock.connectors.base import TIMESTAMP_COLUMN, Connector, Sink, TableSpec
from penstock.connectors.blackhole import Blackhole
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.spark.testing import spark_settings

RATE: Final = 1000
FILTER: Final = """
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '{rate}', message_count = '{count}');
CREATE TABLE nothing (counter BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT counter FROM ticks WHERE counter % 10 <> 3;
"""
WINDOWS_RATE: Final = 10_000
WATERMARK_US: Final = 1_000_000
WINDOWS: Final = """
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '{rate}', message_count = '{count}');
CREATE TABLE nothing (k BIGINT, n BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT k, n FROM (
  SELECT counter % {keys} AS k, count(*) AS n, tumble(INTERVAL '{width_ms} milliseconds') AS span
  FROM ticks GROUP BY counter % {keys}, span
);
"""
QUANTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99, "p99.9_ms": 0.999}
COLUMNS: Final = {
    "query": "",
    "events_s": ",d",
    "rows": ",d",
    "windows": ",d",
    "p50_ms": ".2f",
    "p99_ms": ".2f",
    "p99.9_ms": ".2f",
}


class Arrivals(Blackhole):
    """A black hole that notes when the last row of each window fell into it."""

    def __init__(self) -> None:
        self.rows = 0
        self.at_us: dict[int, int] = {}

    def open_sink(self, spec: TableSpec) -> Sink:
        return _ArrivalsSink(self)

    def latencies_ms(self) -> list[float]:
        """Of each window, from when it could be there. Event times of results are a microsecond before its end."""
        return [(at - end - 1 - WATERMARK_US) / 1000 for end, at in sorted(self.at_us.items())]


class _ArrivalsSink:
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    async def write(self, batch: pa.RecordBatch) -> None:
        now_us = time.time_ns() // 1000
        self._arrivals.rows += batch.num_rows
        ends = pc.unique(batch.column(batch.schema.get_field_index(TIMESTAMP_COLUMN)).view(pa.int64())).to_pylist()
        self._arrivals.at_us |= dict.fromkeys(ends, now_us)

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return


async def measure_filter(engine: Engine, seconds: int) -> dict[str, Any]:
    program = await compiled(engine, FILTER.format(rate=RATE, count=RATE * seconds))
    execution = await run_job(engine, program, 1)
    (metrics,) = (metrics for metrics in execution.metrics if metrics.latency is not None)
    latency = metrics.latency
    assert latency is not None
    quantiles = {name: latency.quantile_ms(share) for name, share in QUANTILES.items()}
    return {"query": "filter", "events_s": RATE, "rows": metrics.rows_out, "windows": 0, **quantiles}


async def measure_windows(engine: Engine, seconds: int, width_ms: int, keys: int) -> dict[str, Any]:
    count = WINDOWS_RATE * seconds
    sql = WINDOWS.format(rate=WINDOWS_RATE, count=count, keys=keys, width_ms=width_ms)
    arrivals = Arrivals()
    connectors: Mapping[str, Connector] = {**CONNECTORS, arrivals.name: arrivals}
    await run_job(engine, await compiled(engine, sql), 2, connectors)
    closed_by_end = WATERMARK_US // 1000 // width_ms + 1
    found = arrivals.latencies_ms()[:-closed_by_end]
    quantiles = {name: float(np.quantile(found, share, method="higher")) for name, share in QUANTILES.items()}
    name = f"tumble {width_ms} ms"
    return {"query": name, "events_s": WINDOWS_RATE, "rows": arrivals.rows, "windows": len(found), **quantiles}


async def main() -> None:
    arguments = options(__doc__)
    seconds = 10 if arguments.quick else 60
    async with await Engine.start(spark_settings()) as engine:
        await measure_filter(engine, 3)  # code is loaded and compiled: not counted
        rows = [await measure_filter(engine, seconds)]
        await measure_windows(engine, 8, 100, 100)
        for width_ms, keys in ((1000, 1000), (100, 100)):
            rows.append(await measure_windows(engine, seconds, width_ms, keys))
    show({"benchmark": "latency", "rows": rows}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
