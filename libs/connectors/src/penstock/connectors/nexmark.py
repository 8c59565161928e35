"""The connector `nexmark`: the events of the Nexmark benchmark, the same for any parallelism and batch size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

import pyarrow as pa
from pydantic import Field, PositiveFloat, PositiveInt

from penstock.common.errors import InternalError
from penstock.common.quantities import Duration
from penstock.connectors.base import (
    TIMESTAMP_COLUMN,
    TIMESTAMP_TYPE,
    Options,
    Role,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    TableSpec,
)
from penstock.connectors.generated import beginning, generated_source
from penstock.connectors.instants import Instant, microseconds_of
from penstock.connectors.nexmark_events import COLUMNS, EPOCH_EVENTS, Events, Timeline, generate_column
from penstock.connectors.options import read_options
from penstock.connectors.shares import Numbers, Share

_BASE_TIME: Final = datetime(2015, 7, 15, tzinfo=UTC)
"""The standard's."""
_DELAY: Final = timedelta(microseconds=100)


class NexmarkOptions(Options):
    """The options of a table of `nexmark`."""

    event_rate: PositiveFloat | None = Field(
        default=None, description="events a second of all subtasks; none: without limit"
    )
    events: PositiveInt | None = Field(default=None, description="events of all subtasks together; none: without end")
    base_time: Instant = Field(default=_BASE_TIME, description="the event time of the first event")
    inter_event_delay: Duration | None = Field(
        default=None, description="the event time between two events; none: what follows from event_rate, or 0.1ms"
    )
    out_of_order: PositiveInt = Field(default=1, description="events come in groups of so many, each of them shuffled")


class Nexmark:
    """Persons, auctions and bids."""

    name: ClassVar[str] = "nexmark"
    description: ClassVar[str] = "Persons, auctions and bids of the Nexmark benchmark"
    source: ClassVar[SourceKind | None] = SourceKind(options=NexmarkOptions, metadata={})
    sink: ClassVar[SinkKind | None] = None

    def schema(self, options: Options) -> pa.Schema | None:
        return COLUMNS

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        options = read_options(self.name, NexmarkOptions, spec.options)
        timeline = Timeline(microseconds_of(options.base_time), _interval_microseconds(options), options.out_of_order)
        return generated_source(
            _Rows(spec.schema, timeline),
            beginning(spec.restored, Share(spec.subtask, spec.parallelism, block=EPOCH_EVENTS)),
            total=options.events,
            batch_rows=spec.batch_rows,
            event_rate=options.event_rate,
        )

    def open_sink(self, spec: TableSpec) -> Sink:
        raise InternalError("nexmark has no sinks")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Events, whatever the time is."""

    schema: pa.Schema
    timeline: Timeline

    def begin(self, number: int) -> None:
        return

    def generate(self, numbers: Numbers) -> pa.RecordBatch:
        return generate_events(self.schema, numbers, self.timeline)

    def time_us(self, number: int) -> int | None:
        return None


def generate_events(schema: pa.Schema, positions: Numbers, timeline: Timeline) -> pa.RecordBatch:
    """The events at given places of the stream, with the columns and members of the schema and no others."""
    events = Events(timeline.numbers(positions), timeline)
    arrays = [
        pa.array(events.times, TIMESTAMP_TYPE) if column.name == TIMESTAMP_COLUMN else generate_column(column, events)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _interval_microseconds(options: NexmarkOptions) -> float:
    if options.inter_event_delay is not None:
        return microseconds_of(options.inter_event_delay)
    return microseconds_of(_DELAY) if options.event_rate is None else 1_000_000 / options.event_rate
