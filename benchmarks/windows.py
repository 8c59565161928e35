"""Windows in event time at parallelism 2, from JSON lines in files into nothing: what each engine takes for them.

Two queries over the same events of 10,000 keys: count, sum and max by key in windows of 10 s, and a count by key in
windows of 10 s every 2 s. The engines take turns in one run, each in JVMs of its own and after rounds that are not
counted; the first of those writes its results to files, and nothing is measured unless they are those of DuckDB.

- Penstock (default settings) reads four files, each a partition. Its seconds include compiling and planning.
- Structured Streaming has two shuffle partitions, twice the heap, and its state in memory. In `one batch` it reads the
  same files in one micro-batch (`availableNow`), which is the least work for it: state is written once, and all windows
  leave at the very end. In `batches` the same events are in files that follow each other in time, each a micro-batch of
  10 s of event time, so that a window leaves about when the others let it out.
- Flink SQL has mini-batches, two-phase aggregation and object reuse, state on the heap and no checkpoints. One of its
  source's subtasks reads a file after the other, with which all rows of the second would be late: it gets the same
  events in two files. Its seconds are its jobs' own, without those of starting a cluster for each.

A closing event at each file's end makes all watermarks pass the last window, so that all answer the same question.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
from environments import PeerUnavailable
from flink import flink
from local_job import compiled, run, run_job
from plain_pyspark import PlainPySpark, plain_pyspark
from report import options, show
from sessions import Session
from window_events import (
    EVENTS_PER_SECOND,
    HOP,
    TUMBLE,
    Window,
    expected_digest,
    write_events,
    write_events_by_time,
    written_digest,
)

from penstock.spark import Engine
from penstock.spark.testing import spark_settings

PARALLELISM: Final = 2
FILES: Final = 4
WARMING: Final = 4
BATCH_ROWS: Final = 10 * EVENTS_PER_SECOND
COLUMNS: Final = {
    "query": "",
    "engine": "",
    "events": ",d",
    "results": ",d",
    "seconds": ".2f",
    "cpu_s": ".2f",
    "Mevents_s": ".2f",
}


class Contender(Protocol):
    """An engine that runs the queries."""

    name: str

    def processes(self) -> list[psutil.Process]:
        """Those whose CPU time is the engine's."""
        ...

    async def run(self, window: Window, into: Path | None) -> float | None:
        """Runs a query into files of a folder, or into nothing; returns its seconds if it knows them better."""
        ...


class Penstock:
    """The engine of this project, as a worker runs it."""

    name = "penstock"

    def __init__(self, engine: Engine, events: Path) -> None:
        self._engine = engine
        self._events = events

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(), psutil.Process(self._engine.pid)]

    async def run(self, window: Window, into: Path | None) -> None:
        program = await compiled(self._engine, self._sql(window, into))
        await run_job(self._engine, program, PARALLELISM)

    def _sql(self, window: Window, into: Path | None) -> str:
        if window.tumbles:
            call, columns, aggregates = "tumble(INTERVAL '10 seconds')", ", s BIGINT, m BIGINT", ", sum(v), max(v)"
        else:
            call, columns, aggregates = "hop(INTERVAL '2 seconds', INTERVAL '10 seconds')", "", ""
        sink = "'blackhole'" if into is None else f"'single_file', type = 'sink', path = '{into}/part-0'"
        names = ", s, m" if window.tumbles else ""
        return f"""
        CREATE TABLE events (
          t BIGINT NOT NULL, k BIGINT, v BIGINT, ts TIMESTAMP GENERATED ALWAYS AS (timestamp_millis(t)::TIMESTAMP),
          WATERMARK FOR ts AS ts - INTERVAL '1 second'
        ) WITH (connector = 'filesystem', path = '{self._events}');
        CREATE TABLE results (w TIMESTAMP, k BIGINT, n BIGINT{columns}) WITH (connector = {sink});
        CREATE VIEW windows (span, k, n{names}) AS
        SELECT {call} AS span, k, count(*){aggregates} FROM events GROUP BY k, span;
        INSERT INTO results SELECT span.start, k, n{names} FROM windows;
        """


class StructuredStreaming:
    """Plain PySpark; run in the thread to which py4j ties its connection."""

    def __init__(self, name: str, peer: PlainPySpark, events: Path, reading: Mapping[str, str]) -> None:
        self.name = name
        self._reading = reading
        self._session = peer.session
        self._session.conf.set("spark.sql.shuffle.partitions", str(PARALLELISM))
        self._pid = int(self._session._jvm.java.lang.ProcessHandle.current().pid())
        self._events = events

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._pid)]

    async def run(self, window: Window, into: Path | None) -> None:
        reader = self._session.readStream.schema("t BIGINT, k BIGINT, v BIGINT").options(**self._reading)
        lines = reader.json(str(self._events))
        events = lines.selectExpr("timestamp_millis(t) AS ts", "k", "v").withWatermark("ts", "1 second")
        events.createOrReplaceTempView("events")
        aggregates = ", sum(v) AS s, max(v) AS m" if window.tumbles else ""
        span = f"window(ts, '{window.width_seconds} seconds', '{window.slide_seconds} seconds')"
        sql = f"SELECT window.start AS w, k, count(*) AS n{aggregates} FROM events GROUP BY {span}, k"
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = self._session.sql(sql).writeStream.format("noop" if into is None else "json")
            writer = writer.option("checkpointLocation", checkpoint).outputMode("append").trigger(availableNow=True)
            (writer.start() if into is None else writer.start(str(into))).awaitTermination()


class FlinkSql:
    """Flink, in its session."""

    name = "flink"

    def __init__(self, session: Session, events: Path) -> None:
        self._session = session
        self._events = events

    def processes(self) -> list[psutil.Process]:
        return self._session.processes

    async def run(self, window: Window, into: Path | None) -> float:
        # Files are complete with the checkpoint at the end of a job.
        settings = {} if into is None else {"execution.checkpointing.interval": "10 min"}
        return self._session.run({"statements": list(self._statements(window, into)), "settings": settings})

    def _statements(self, window: Window, into: Path | None) -> Iterator[str]:
        if window.tumbles:
            call, columns, aggregates = "TUMBLE", ", s BIGINT, m BIGINT", ", SUM(v), MAX(v)"
            spans = f"INTERVAL '{window.width_seconds}' SECOND"
        else:
            call, columns, aggregates = "HOP", "", ""
            spans = f"INTERVAL '{window.slide_seconds}' SECOND, INTERVAL '{window.width_seconds}' SECOND"
        sink = "'blackhole'" if into is None else f"'filesystem', 'path' = 'file://{into}', 'format' = 'json'"
        yield f"""
        CREATE TABLE events (
          t BIGINT, k BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(t, 3),
          WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = 'file://{self._events}', 'format' = 'json')
        """
        yield f"CREATE TABLE results (w TIMESTAMP(3), k BIGINT, n BIGINT{columns}) WITH ('connector' = {sink})"
        yield f"""
        INSERT INTO results SELECT window_start, k, COUNT(*){aggregates}
        FROM TABLE({call}(TABLE events, DESCRIPTOR(ts), {spans})) GROUP BY window_start, window_end, k
        """


@dataclass
class Taken:
    """What the rounds of one engine and query took."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    async def add(self, contender: Contender, window: Window) -> None:
        before, started = cpu_seconds(contender), time.perf_counter()
        known = await contender.run(window, None)
        self.seconds.append(time.perf_counter() - started if known is None else known)
        self.cpu_seconds.append(cpu_seconds(contender) - before)


def cpu_seconds(contender: Contender) -> float:
    """The CPU time of an engine so far."""
    times = [process.cpu_times() for process in contender.processes()]
    return sum(one.user + one.system for one in times)


async def check(contender: Contender, window: Window, folder: Path, expected: tuple[int, str]) -> None:
    """Ends the benchmark unless an engine's results are the right ones."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    await contender.run(window, folder)
    found = await asyncio.to_thread(written_digest, folder, window)
    if found != expected:
        sys.exit(f"{contender.name} gives other results of {window.name}: {found[0]} rows instead of {expected[0]}")


async def compare(
    window: Window, contenders: list[Contender], expected: tuple[int, str], folder: Path, rounds: int, warming: int
) -> dict[str, Taken]:
    """The counted rounds of each engine, in turns, after those that warm it, of which the first is a check."""
    taken = {contender.name: Taken() for contender in contenders}
    for contender in contenders:
        await check(contender, window, folder / window.name / contender.name, expected)
    for number in range(1, warming + rounds):
        for contender in contenders:
            this = taken[contender.name] if number >= warming else Taken()
            await this.add(contender, window)
    return taken


def figures(window: Window, rows: int, results: int, taken: dict[str, Taken]) -> Iterator[dict[str, Any]]:
    for name, one in taken.items():
        seconds = statistics.median(one.seconds)
        yield {
            "query": window.name,
            "engine": name,
            "events": rows,
            "results": results,
            "seconds": seconds,
            "cpu_s": statistics.median(one.cpu_seconds),
            "Mevents_s": rows / seconds / 1e6,
            "rounds_s": [round(second, 3) for second in one.seconds],
            "rounds_cpu_s": [round(second, 3) for second in one.cpu_seconds],
        }


def ratios(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """How many times faster Penstock is, in time and in CPU."""
    ours = {row["query"]: row for row in rows if row["engine"] == "penstock"}
    for row in rows:
        mine = ours[row["query"]]
        if row is not mine:
            name = f"{row['query']}_times_{row['engine'].replace(' ', '_')}"
            yield name, row["seconds"] / mine["seconds"]
            yield f"{name}_cpu", row["cpu_s"] / mine["cpu_s"]


async def open_contenders(folder: Path, rows: int, stack: AsyncExitStack) -> tuple[list[Contender], str]:
    """All engines that there are, each with its events; and which Flink, or why there is none."""
    events, by_time, fewer = folder / "events", folder / "by_time", folder / "fewer"
    await asyncio.to_thread(write_events, events, rows, FILES)
    await asyncio.to_thread(write_events_by_time, by_time, rows, rows // BATCH_ROWS)
    engine = await stack.enter_async_context(await Engine.start(spark_settings()))
    peer = stack.enter_context(plain_pyspark(spark_settings(heap=2 << 30)))
    contenders: list[Contender] = [
        Penstock(engine, events),
        StructuredStreaming("spark one batch", peer, events, {}),
        StructuredStreaming("spark batches", peer, by_time, {"maxFilesPerTrigger": "1"}),
    ]
    try:
        session = stack.enter_context(flink(folder / "flink.log"))
    except PeerUnavailable as reason:
        return contenders, f"not available: {reason}"
    await asyncio.to_thread(write_events, fewer, rows, PARALLELISM)
    return [*contenders, FlinkSql(session, fewer)], session.version


async def main() -> None:
    arguments = options(__doc__)
    rows, rounds, warming = (400_000, 1, 1) if arguments.quick else (3_000_000, 3, WARMING)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders, flink_version = await open_contenders(folder, rows, stack)
        found: list[dict[str, Any]] = []
        for window in (TUMBLE, HOP):
            expected = await asyncio.to_thread(expected_digest, folder / "events", window)
            taken = await compare(window, contenders, expected, folder, rounds, warming)
            found += figures(window, rows, expected[0], taken)
    result = {"benchmark": "windows", "rows": found, **dict(ratios(found)), "flink": flink_version}
    show(result, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
