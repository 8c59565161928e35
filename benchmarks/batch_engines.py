"""Windows in event time from JSON lines, beside engines that know all rows before they answer: Polars and DuckDB.

The events and the two queries of `windows.py`, from the same four files. The engines take turns in one run, after
rounds that are not counted; the first of those writes results to files, and nothing is measured unless all have the
same ones.

- Penstock (default settings, parallelism 2) is a stream: it keeps a watermark, lets each window out when that has
  passed, and could go on for ever. Its seconds include compiling and planning; results go to a blackhole.
- Polars has two threads, in a process and an environment of its own: a lazy scan with its schema given, collected by
  the streaming engine.
- DuckDB has two threads: `read_json` with its columns given, and results as an Arrow table.

Both peers make windows that overlap of panes as long as a slide, as Penstock does by itself.

`<query>_times_<peer>` is Penstock's throughput as a share of the peer's. The aims are 0.7 of Polars and 0.4 of DuckDB.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import duckdb
import psutil
from environments import PeerUnavailable, environment
from local_job import run
from report import options, show
from sessions import Command, Session, session
from window_events import HOP, TUMBLE, Window, expected_digest, write_events
from windows import COLUMNS, FILES, PARALLELISM, WARMING, Contender, Penstock, compare, figures, ratios

from penstock.spark import Engine
from penstock.spark.testing import spark_settings

POLARS: Final = "polars==2.1.0"
_SESSION: Final = Path(__file__).with_name("polars_session.py")


class Polars:
    """Polars, in its session."""

    name = "polars"

    def __init__(self, opened: Session, events: Path) -> None:
        self._session = opened
        self._events = events

    def processes(self) -> list[psutil.Process]:
        return self._session.processes

    async def run(self, window: Window, into: Path | None) -> float:
        return self._session.run(
            {
                "files": f"{self._events}/*.json",
                "slide_ms": window.slide_seconds * 1000,
                "width_ms": window.width_seconds * 1000,
                "tumbles": window.tumbles,
                "into": into and f"{into}/part-0",
            }
        )


class DuckDb:
    """DuckDB, in this process, which does nothing else meanwhile."""

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, events: Path) -> None:
        self._connection = connection
        self._events = events
        connection.execute(f"SET threads = {PARALLELISM}")

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process()]

    async def run(self, window: Window, into: Path | None) -> None:
        query = duckdb_query(self._events, window)
        if into is None:
            self._connection.sql(query).to_arrow_table()
        else:
            timed = f"SELECT * REPLACE (make_timestamp(w * 1000) AS w) FROM ({query})"
            self._connection.execute(f"COPY ({timed}) TO '{into}/part-0' (FORMAT JSON)")


def duckdb_query(events: Path, window: Window) -> str:
    """One aggregate, or panes and what they are put together to."""
    slide, width = window.slide_seconds * 1000, window.width_seconds * 1000
    columns = "columns = {t: 'BIGINT', k: 'BIGINT', v: 'BIGINT'}"
    source = f"read_json('{events}/*.json', format = 'newline_delimited', {columns})"
    aggregates = "count(*) AS n, sum(v) AS s, max(v) AS m" if window.tumbles else "count(*) AS n"
    grouped = f"SELECT t // {slide} * {slide} AS w, k, {aggregates} FROM {source} GROUP BY ALL"
    if window.tumbles:
        return grouped
    moved = f"SELECT w - back AS w, k, n FROM ({grouped}), range(0, {width}, {slide}) AS moves (back)"
    return f"SELECT w, k, sum(n) AS n FROM ({moved}) GROUP BY ALL"


async def open_contenders(folder: Path, stack: AsyncExitStack) -> tuple[list[Contender], str]:
    """All engines that there are; and which Polars, or why there is none."""
    events = folder / "events"
    engine = await stack.enter_async_context(await Engine.start(spark_settings()))
    connection = stack.enter_context(duckdb.connect())
    contenders: list[Contender] = [Penstock(engine, events), DuckDb(connection, events)]
    try:
        python = await asyncio.to_thread(environment, POLARS)
        command = Command([str(python / "bin/python"), str(_SESSION)], {"POLARS_MAX_THREADS": str(PARALLELISM)})
        opened = stack.enter_context(session(command, folder / "polars.log"))
    except PeerUnavailable as reason:
        return contenders, f"not available: {reason}"
    return [*contenders, Polars(opened, events)], opened.version


async def main() -> None:
    arguments = options(__doc__)
    rows, rounds, warming = (400_000, 1, 1) if arguments.quick else (3_000_000, 5, WARMING)
    load = os.getloadavg()[0]

    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await asyncio.to_thread(write_events, folder / "events", rows, FILES)
        contenders, polars = await open_contenders(folder, stack)
        found: list[dict[str, Any]] = []
        for window in (TUMBLE, HOP):
            expected = await asyncio.to_thread(expected_digest, folder / "events", window)
            taken = await compare(window, contenders, expected, folder, rounds, warming)
            found += figures(window, rows, expected[0], taken)
    versions = {"polars": polars, "duckdb": duckdb.__version__, "load": f"{load:.1f} when it began"}
    show({"benchmark": "batch engines", "rows": found, **dict(ratios(found)), **versions}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
