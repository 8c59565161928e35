"""What benchmarks of windows read and what the answers are: events as files of JSON lines, and DuckDB's opinion.

Each file holds a share of the events of all times, in the order of their times with a disorder of half a second at
most, which the watermark of one second covers: nothing is late. Its last line is a closing event, long after the
others, with which every watermark passes the end of every window; the windows of closing events are nobody's answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.formats.json_encoder import JsonEncoder

KEYS: Final = 10_000
EVENTS_PER_SECOND: Final = 20_000
_BEGIN_MS: Final = 1_767_225_600_000
_CLOSING_MS: Final = 86_400_000
_DISORDER_MS: Final = 500
_BLOCK_ROWS: Final = 250_000


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of a width, one at each slide; tumbling when both are the same."""

    name: str
    slide_seconds: int
    width_seconds: int

    @property
    def tumbles(self) -> bool:
        return self.slide_seconds == self.width_seconds


TUMBLE: Final = Window("tumble", 10, 10)
HOP: Final = Window("hop", 2, 10)


Int64s: TypeAlias = npt.NDArray[np.int64]


def write_events(folder: Path, rows: int, files: int) -> None:
    """Writes `t` (milliseconds), `k` and `v`, dealt to files of all times; the same events, whatever their number."""
    events = _events(rows)
    _write(folder, [[column[file::files] for column in events] for file in range(files)], closing=True)


def write_events_by_time(folder: Path, rows: int, files: int) -> None:
    """Writes the same events to files of which each follows the one before in time; the last has the closing event."""
    parts = zip(*(np.array_split(column, files) for column in _events(rows)), strict=True)
    _write(folder, [list(part) for part in parts], closing=False)


def _events(rows: int) -> list[Int64s]:
    random = np.random.default_rng(rows)
    due = _BEGIN_MS + np.arange(rows) * 1000 // EVENTS_PER_SECOND
    times = np.maximum(due - random.integers(0, _DISORDER_MS, rows), _BEGIN_MS)
    return [times, random.integers(0, KEYS, rows), random.integers(0, 1_000_000, rows)]


def _write(folder: Path, parts: Sequence[Sequence[Int64s]], *, closing: bool) -> None:
    folder.mkdir()
    for number, columns in enumerate(parts):
        with (folder / f"events-{number:03}.json").open("wb") as into:
            for begin in range(0, len(columns[0]), _BLOCK_ROWS):
                into.write(_lines(*(column[begin : begin + _BLOCK_ROWS] for column in columns)))
            if closing or columns is parts[-1]:
                into.write(_lines(np.array([columns[0].max() + _CLOSING_MS]), np.array([-1]), np.array([0])))


def _lines(*columns: Int64s) -> bytes:
    batch = pa.record_batch(dict(zip(("t", "k", "v"), columns, strict=True)))
    return JsonEncoder(batch.schema).encode(batch)


def expected_digest(events: Path, window: Window) -> tuple[int, str]:
    """How many results there are of a query, and a digest of them."""
    slide, width = window.slide_seconds * 1000, window.width_seconds * 1000
    aggregates = "count(*) AS n, sum(v) AS s, max(v) AS m" if window.tumbles else "count(*) AS n"
    return _digest(
        f"""
        SELECT w, k, {aggregates} FROM (
          SELECT unnest(range(t // {slide} * {slide}, t - {width}, -{slide})) AS w, k, v
          FROM read_json('{events}/*.json', columns = {{t: 'BIGINT', k: 'BIGINT', v: 'BIGINT'}})
        ) GROUP BY w, k
        """
    )


def written_digest(folder: Path, window: Window) -> tuple[int, str]:
    """The same of the results in all files of a folder: `w` is a timestamp, the others are numbers."""
    names = ("n", "s", "m") if window.tumbles else ("n",)
    columns = {"w": "TIMESTAMP", "k": "BIGINT", **dict.fromkeys(names, "BIGINT")}
    files = [str(path) for path in folder.rglob("*") if path.is_file() and path.name.startswith("part-")]
    if not files:
        return 0, ""
    source = f"read_json({files}, format = 'newline_delimited', columns = {columns})"
    return _digest(f"SELECT epoch_ms(w) AS w, k, {', '.join(names)} FROM {source}")


def _digest(query: str) -> tuple[int, str]:
    with duckdb.connect() as connection:
        ordered = f"SELECT * FROM ({query}) WHERE k >= 0 ORDER BY ALL"
        table: pa.Table = connection.sql(ordered).to_arrow_table()
    digest = hashlib.sha256()
    for column in table.columns:
        digest.update(column.cast(pa.int64()).to_numpy().tobytes())
    return table.num_rows, digest.hexdigest()
