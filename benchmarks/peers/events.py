"""What the engines read: events of Penstock's own Nexmark generator as JSON lines, the same rows in two layouts.

`dealt/<table>/` has two files, each of all times and in the order of time: one for each reader of an engine of
parallelism 2, so that neither runs ahead into times at which the other's rows would be late. `by_time/<table>/` has the
same rows in files of which each follows the one before, for an engine whose steps are files. All end in closing events,
an hour later and with ids of their own, with which every watermark passes the end of every window.

Times are whole milliseconds, as the standard has them: the finest event time that all engines can read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
from nexmark.events import event_batches
from peers.queries import CLOSING_ID

from penstock.connectors.formats.json_encoder import JsonEncoder
from penstock.connectors.instants import microseconds_of
from penstock.connectors.nexmark import NexmarkOptions
from penstock.connectors.nexmark_events import EPOCH_EVENTS
from penstock.connectors.shares import Share

PARALLELISM: Final = 2
_STEP_EVENTS: Final = 250_000
"""Events of a file of `by_time`, hence of a micro-batch: 25 s of event time."""
_STEPS: Final = 4
"""Files of `by_time` at least, so that few events are a stream as well."""
_INTERVAL_US: Final = 100
"""The generator's: 10,000 events are a second."""
_CLOSING_US: Final = 3_600_000_000
_TABLES: Final = ("person", "auction", "bid")


@dataclass(frozen=True, slots=True)
class Files:
    """Where the events are."""

    folder: Path
    events: int

    @property
    def dealt(self) -> Path:
        return self.folder / "dealt"

    @property
    def by_time(self) -> Path:
        return self.folder / "by_time"


def write_files(folder: Path, events: int) -> Files:
    """Writes both layouts."""
    files = Files(folder, events)
    options = NexmarkOptions(events=events)
    for table in _TABLES:
        for layout in (files.dealt, files.by_time):
            (layout / table).mkdir(parents=True)
        _write_dealt(files.dealt / table, table, options)
        _write_by_time(files.by_time / table, table, options)
    return files


def _write_dealt(folder: Path, table: str, options: NexmarkOptions) -> None:
    for share in range(PARALLELISM):
        with (folder / f"{share}.json").open("wb") as file:
            for rows in _rows(table, options, Share(share, PARALLELISM, EPOCH_EVENTS)):
                _append(file, rows)
            _append(file, _closing(rows.schema, options))


def _write_by_time(folder: Path, table: str, options: NexmarkOptions) -> None:
    assert options.events is not None
    step_events = min(_STEP_EVENTS, -(-options.events // _STEPS))
    paths = [folder / f"{step:04}.json" for step in range(-(-options.events // step_events))]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for rows in _rows(table, options, Share(0, 1, EPOCH_EVENTS)):
            passed = rows.column("dateTime").cast(pa.int64()).to_numpy() - microseconds_of(options.base_time)
            steps = passed // (step_events * _INTERVAL_US)
            for step in range(steps[0], steps[-1] + 1):
                _append(files[step], rows.filter(pa.array(steps == step)))
        for _ in range(PARALLELISM):
            _append(files[-1], _closing(rows.schema, options))
    for step, path in enumerate(paths):
        os.utime(path, (step, step))  # files are read in the order of their ages


def _rows(table: str, options: NexmarkOptions, share: Share) -> Iterator[pa.RecordBatch]:
    """Rows with whole milliseconds."""
    for batch in event_batches(table, options, share):
        arrays = [
            pc.floor_temporal(column, unit="millisecond") if pa.types.is_timestamp(column.type) else column
            for column in batch.columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _closing(schema: pa.Schema, options: NexmarkOptions) -> pa.RecordBatch:
    assert options.events is not None
    last = microseconds_of(options.base_time) + options.events * _INTERVAL_US + _CLOSING_US
    values: dict[pa.DataType, Any] = {pa.int64(): CLOSING_ID, pa.string(): "", pa.timestamp("us"): last // 1000 * 1000}
    return pa.RecordBatch.from_arrays([pa.array([values[field.type]], field.type) for field in schema], schema.names)


def _append(file: BinaryIO, rows: pa.RecordBatch) -> None:
    file.write(JsonEncoder(rows.schema).encode(rows))
