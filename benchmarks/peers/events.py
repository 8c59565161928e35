"""What the engines read: events of Penstock's own Nexmark generator as JSON lines, the same rows in two layouts.

`dealt/<table>/` has two files a table, each of all times and in the order of time: one for each reader of an engine of
parallelism 2, so that neither runs ahead into times at which the other's rows would be late. `by_time/<table>/` has the
same rows in files of which each follows the one before, for an engine whose steps are files. All end in closing events,
an hour later and with ids of their own, with which every watermark passes the end of every window.

Times are whole milliseconds, as the standard has them: the finest event time that all engines can read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from peers.queries import CLOSING_ID

from penstock.connectors.formats.json_encoder import JsonEncoder
from penstock.connectors.nexmark_events import COLUMNS, EPOCH_EVENTS, Events, Timeline, generate_column
from penstock.connectors.shares import Numbers

PARALLELISM: Final = 2
_STEP_EVENTS: Final = 250_000
"""Events of a file of `by_time`, hence of a micro-batch: 25 s of event time."""
_STEPS: Final = 4
"""Files of `by_time` at least, so that few events are a stream as well."""
_TIMELINE: Final = Timeline(1_436_918_400_000_000, 100.0)
"""The standard's: 10,000 events a second from 15 July 2015 on."""
_CLOSING_US: Final = 3_600_000_000
_BLOCK_EVENTS: Final = 50_000
_TABLES: Final[Mapping[str, tuple[int, int]]] = {"person": (0, 1), "auction": (1, 4), "bid": (4, EPOCH_EVENTS)}
"""Which of each 50 events are of a table."""
_NAMES: Final = {
    "datetime": "dateTime",
    "email_address": "emailAddress",
    "credit_card": "creditCard",
    "item_name": "itemName",
    "initial_bid": "initialBid",
}


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
    for table in _TABLES:
        _write_dealt(files.dealt / table, table, events)
        _write_by_time(files.by_time / table, table, events)
    return files


def _write_dealt(folder: Path, table: str, events: int) -> None:
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        into = [stack.enter_context((folder / f"{share}.json").open("wb")) for share in range(PARALLELISM)]
        for numbers in _blocks(0, events):
            rows = _rows(table, numbers)
            for share, file in enumerate(into):
                _append(file, rows.take(pa.array(np.arange(share, rows.num_rows, PARALLELISM))))
        for file in into:
            _append(file, _closing(table, events))


def _write_by_time(folder: Path, table: str, events: int) -> None:
    folder.mkdir(parents=True)
    steps = [*range(0, events, min(_STEP_EVENTS, -(-events // _STEPS))), events]
    for step, (begin, end) in enumerate(pairwise(steps)):
        path = folder / f"{step:04}.json"
        with path.open("wb") as file:
            for numbers in _blocks(begin, end):
                _append(file, _rows(table, numbers))
            if end == events:
                for _ in range(PARALLELISM):
                    _append(file, _closing(table, events))
        os.utime(path, (step, step))  # files are read in the order of their ages


def _blocks(begin: int, end: int) -> Iterator[Numbers]:
    for first in range(begin, end, _BLOCK_EVENTS):
        yield np.arange(first, min(first + _BLOCK_EVENTS, end))


def _rows(table: str, numbers: Numbers) -> pa.RecordBatch:
    """The events of a table among those of some numbers."""
    first, last = _TABLES[table]
    place = numbers % EPOCH_EVENTS
    events = Events(numbers[(place >= first) & (place < last)], _TIMELINE)
    return _named(pa.RecordBatch.from_struct_array(generate_column(COLUMNS.field(table), events)))


def _named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With the standard's names, and whole milliseconds."""
    arrays = [
        pc.floor_temporal(column, unit="millisecond") if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, [_NAMES.get(name, name) for name in batch.schema.names])


def _closing(table: str, events: int) -> pa.RecordBatch:
    last = int(_TIMELINE.times(np.array([events]))[0])
    values: dict[pa.DataType, Any] = {pa.int64(): CLOSING_ID, pa.string(): "", pa.timestamp("us"): last + _CLOSING_US}
    members: Sequence[pa.Field] = list(COLUMNS.field(table).type)
    arrays = [pa.array([values[member.type]], member.type) for member in members]
    return _named(pa.RecordBatch.from_arrays(arrays, [member.name for member in members]))


def _append(file: BinaryIO, rows: pa.RecordBatch) -> None:
    file.write(JsonEncoder(rows.schema).encode(rows))
