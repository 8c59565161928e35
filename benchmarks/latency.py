"""Latency from a row's event time to its write, at 1,000 events a second: impulse → filter → blackhole."""

from __future__ import annotations

from local_job import compiled, run, run_job
from report import options, show

from penstock.spark import Engine
from penstock.spark.testing import spark_settings

RATE = 1000
SQL = """
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '{rate}', message_count = '{count}');
CREATE TABLE nothing (counter BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT counter FROM ticks WHERE counter % 10 <> 3;
"""
COLUMNS = {"events_s": ",d", "rows": ",d", "p50_ms": ".2f", "p99_ms": ".2f", "p99.9_ms": ".2f"}


async def measure(engine: Engine, seconds: int) -> dict[str, float]:
    program = await compiled(engine, SQL.format(rate=RATE, count=RATE * seconds))
    execution = await run_job(engine, program, 1)
    (metrics,) = (metrics for metrics in execution.metrics if metrics.latency is not None)
    latency = metrics.latency
    assert latency is not None
    return {
        "events_s": RATE,
        "rows": metrics.rows_out,
        "p50_ms": latency.quantile_ms(0.5),
        "p99_ms": latency.quantile_ms(0.99),
        "p99.9_ms": latency.quantile_ms(0.999),
    }


async def main() -> None:
    arguments = options(__doc__)
    async with await Engine.start(spark_settings()) as engine:
        await measure(engine, 3)  # code is loaded and compiled: not counted
        rows = [await measure(engine, 10 if arguments.quick else 60)]
    show({"benchmark": "latency", "rows": rows}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
