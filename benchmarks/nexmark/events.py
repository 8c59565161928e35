"""Nexmark's events as files of JSON lines, which any engine can read.

A folder has `person/`, `auction/` and `bid/`, each with files of flat rows in the order in which they come, and the
file that query 13 looks up. The files are the parts that as many subtasks of the generator would make: they advance in
event time together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from nexmark.queries import write_side_input

from penstock.connectors.formats.json_encoder import JsonEncoder
from penstock.connectors.nexmark import NexmarkOptions, generate_events
from penstock.connectors.nexmark_events import COLUMNS, EPOCH_EVENTS
from penstock.connectors.shares import Share

SIDE_INPUT: Final = "side_input.csv"
_BATCH_EVENTS: Final = 100_000
_STANDARD_NAMES: Final = {
    "email_address": "emailAddress",
    "credit_card": "creditCard",
    "datetime": "dateTime",
    "item_name": "itemName",
    "initial_bid": "initialBid",
}


def event_batches(kind: str, options: NexmarkOptions, part: Share) -> Iterator[pa.RecordBatch]:
    """The events of a kind, of a part of all, as flat rows with the standard's names."""
    assert options.events is not None, "there must be an end"
    columns = pa.schema([COLUMNS.field(kind)])
    count = part.count_below(options.events)
    for first in range(0, count, _BATCH_EVENTS):
        numbers = part.numbers(first, min(_BATCH_EVENTS, count - first))
        rows = pa.RecordBatch.from_struct_array(
            generate_events(columns, numbers, options.timeline, options.shape).column(kind).drop_null()
        )
        yield rows.rename_columns([_STANDARD_NAMES.get(name, name) for name in rows.schema.names])


def write_events(folder: Path, options: NexmarkOptions, parts: int = 1) -> None:
    """Writes all events, each kind into so many files."""
    for kind in COLUMNS.names:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for part in range(parts):
            with (folder / kind / f"part-{part:03}.json").open("wb") as file:
                for rows in event_batches(kind, options, Share(part, parts, EPOCH_EVENTS)):
                    file.write(JsonEncoder(rows.schema).encode(rows))
    write_side_input(folder / SIDE_INPUT)
