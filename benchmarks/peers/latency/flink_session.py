"""Flink SQL in a process of its own, with the Python and the packages of `../../flink.py`: its socket source, `print`.

What the JVM prints comes through a pipe, whose reader looks at the clock. Runs in Flink's environment, and knows
nothing of Penstock.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import threading
import time
from array import array
from datetime import UTC, datetime
from typing import Any, TextIO

# What a competent user sets for low latency; everything else is Flink's default: buffers leave after 100 ms, and a
# watermark comes every 200 ms.
SETTINGS = {
    "execution.buffer-timeout.interval": "1 ms",
    "pipeline.auto-watermark-interval": "5 ms",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "restart-strategy.type": "none",
}
END = b"[end]\n"
ROW = re.compile(rb"\[(.+), (\d+)\]$")


class Printed:
    """What came through the pipe, and when."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._chunks: list[tuple[int, bytes]] = []
        self._ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self) -> None:
        self._chunks, self._ended = [], threading.Event()

    def lines(self) -> list[tuple[int, bytes]]:
        """All lines until now: whole ones, each with the time at which its end came."""
        os.write(1, END)
        self._ended.wait()
        found, rest = [], b""
        for at_us, chunk in self._chunks:
            *complete, rest = (rest + chunk).split(b"\n")
            found += [(at_us, line) for line in complete]
        return found[:-1]

    def _read(self) -> None:
        last = b""
        while chunk := os.read(self._pipe, 1 << 20):
            self._chunks.append((time.time_ns() // 1000, chunk))
            last = (last + chunk)[-len(END) :]
            if last == END:
                self._ended.set()


def run(table: Any, datastream: Any, job: dict[str, Any]) -> None:
    """Runs a job to its end: that of the socket."""
    streams = datastream.StreamExecutionEnvironment.get_execution_environment()
    environment = table.StreamTableEnvironment.create(streams)
    settings = {**SETTINGS, "parallelism.default": "1" if job["width_ms"] is None else "2"}
    for key, value in settings.items():
        environment.get_config().set(key, value)
    java = streams._j_stream_execution_environment  # Python has no name for this source
    lines = datastream.DataStream(java.socketTextStream("127.0.0.1", job["port"]))
    schema = (
        table.Schema.new_builder()
        .column("f0", "STRING")
        .column_by_expression("due_us", "CAST(SPLIT_INDEX(f0, ',', 0) AS BIGINT)")
        .column_by_expression("n", "CAST(SPLIT_INDEX(f0, ',', 1) AS BIGINT)")
        .column_by_expression("ts", "TO_TIMESTAMP_LTZ(CAST(SPLIT_INDEX(f0, ',', 0) AS BIGINT) / 1000, 3)")
        .watermark("ts", "ts - INTERVAL '1' SECOND")
    )
    environment.create_temporary_view("events", lines, schema.build())
    due, query = _query(job)
    environment.execute_sql(f"CREATE TABLE printed (due {due}, events BIGINT) WITH ('connector' = 'print')")
    environment.execute_sql(f"INSERT INTO printed {query}").wait()


def _query(job: dict[str, Any]) -> tuple[str, str]:
    if job["width_ms"] is None:
        return "BIGINT", "SELECT due_us, CAST(1 AS BIGINT) FROM events WHERE MOD(n, 10) <> 3"
    span = f"INTERVAL '{job['width_ms'] / 1000:.3f}' SECOND"
    return "TIMESTAMP(3)", (
        f"SELECT window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), {span})) "
        f"GROUP BY window_start, window_end, MOD(n, {job['keys']})"
    )


def microseconds(due: bytes) -> int:
    """A number, or the text of a time."""
    if due.isdigit():
        return int(due)
    return round(datetime.fromisoformat(due.decode()).replace(tzinfo=UTC).timestamp() * 1000) * 1000


def answer(table: Any, datastream: Any, printed: Printed, job: dict[str, Any]) -> dict[str, Any]:
    """What is said of a job."""
    started = time.perf_counter()
    printed.begin()
    try:
        run(table, datastream, job)
    except Exception as error:  # whatever Java throws arrives as one of several kinds
        causes = [line for line in str(error).splitlines() if line.startswith(("Caused by:", "java.", "org."))]
        return {"refused": (causes or str(error).splitlines() or [repr(error)])[-1].strip()}
    arrivals = array("q")
    for at_us, line in printed.lines():
        if row := ROW.search(line):
            arrivals.extend((microseconds(row[1]), at_us, int(row[2])))
    with open(job["into"], "wb") as into:
        arrivals.tofile(into)
    return {"seconds": time.perf_counter() - started}


def serve(answers: TextIO, printed: Printed) -> None:
    table, datastream = (importlib.import_module(f"pyflink.{name}") for name in ("table", "datastream"))
    version = importlib.import_module("pyflink.version").__version__
    print(json.dumps(version), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(table, datastream, printed, json.loads(line))), file=answers)


if __name__ == "__main__":
    said = os.fdopen(os.dup(1), "w", buffering=1)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    serve(said, Printed(reading))
