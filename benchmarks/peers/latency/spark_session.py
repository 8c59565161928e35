"""Structured Streaming in a process of its own: its socket source, the default trigger, `foreachBatch`.

A micro-batch begins as soon as the one before has ended. The clock is looked at when all rows of one are with the
driver.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
from latencies import Arrivals
from plain_pyspark import PlainPySpark, plain_pyspark

from penstock.spark.testing import spark_settings

SETTINGS = {"spark.sql.shuffle.partitions": "2"}
TAIL_SECONDS = 1
"""After the last event was due; then it is in the source, if it is not far behind."""


class Clocked:
    """A sink of micro-batches."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, pa.Table]] = []

    def __call__(self, rows: Any, _: int) -> None:
        table = rows.toArrow()
        self._batches.append((time.time_ns() // 1000, table))

    def arrivals(self) -> Arrivals:
        at_us = np.concatenate([np.full(table.num_rows, at, np.int64) for at, table in self._batches])
        rows = pa.concat_tables([table for _, table in self._batches])
        return Arrivals(rows["due_us"].to_numpy(), at_us, rows["events"].to_numpy())


def query(session: Any, job: dict[str, Any]) -> Any:
    """The rows: when they were due, or the end of their window, and how many events each is."""
    socket = session.readStream.format("socket").option("host", "127.0.0.1").option("port", job["port"])
    fields = ("CAST(split_part(value, ',', 1) AS BIGINT) AS due_us", "CAST(split_part(value, ',', 2) AS BIGINT) AS n")
    events = socket.load().selectExpr(*fields)
    if job["width_ms"] is None:
        return events.where("n % 10 <> 3").selectExpr("due_us", "1L AS events")
    timed = events.selectExpr("timestamp_micros(due_us) AS ts", f"n % {job['keys']} AS k")
    timed.withWatermark("ts", "1 second").createOrReplaceTempView("events")
    return session.sql(
        "SELECT unix_micros(window.end) AS due_us, k, count(*) AS events "
        f"FROM events GROUP BY window(ts, '{job['width_ms']} milliseconds'), k"
    )


def answer(session: Any, job: dict[str, Any]) -> dict[str, object]:
    """What is said of a job. The source never ends: once all events were sent, what is there is done, and no more."""
    from pyspark.errors import PySparkException

    started, sink = time.perf_counter(), Clocked()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = query(session, job).writeStream.outputMode("append").option("checkpointLocation", checkpoint)
        try:
            running = writer.foreachBatch(sink).start()
            running.awaitTermination(job["count"] / job["rate"] + TAIL_SECONDS)
            running.processAllAvailable()
            running.stop()
        except PySparkException as error:
            return {"refused": str(error).splitlines()[0]}
    sink.arrivals().write(Path(job["into"]))
    return {"seconds": time.perf_counter() - started}


def serve(peer: PlainPySpark, said: TextIO) -> None:
    for key, value in SETTINGS.items():
        peer.session.conf.set(key, value)
    print(json.dumps(peer.session.version), file=said)
    for line in sys.stdin:
        print(json.dumps(answer(peer.session, json.loads(line))), file=said)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with plain_pyspark(spark_settings(heap=int(sys.argv[1]))) as opened:
        serve(opened, answers)
