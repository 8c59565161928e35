"""The connector `nexmark`: the events of the Nexmark benchmark, the same for any parallelism and batch size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar, Final, Self

import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

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
from penstock.connectors.nexmark_events import (
    COLUMNS,
    EPOCH_EVENTS,
    STANDARD,
    Events,
    Shape,
    Timeline,
    generate_column,
)
from penstock.connectors.options import read_options
from penstock.connectors.shares import Numbers, Share

_BASE_TIME: Final = datetime(2015, 7, 15, tzinfo=UTC)
"""The standard's."""
_DELAY: Final = timedelta(microseconds=100)
_Ratio = Annotated[PositiveInt, Field(lt=1 << 20)]


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
    max_delay: Duration | None = Field(
        default=None, description="the same by event time: how much earlier than one before it an event may be, at most"
    )
    hot_auction_ratio: _Ratio = Field(
        default=STANDARD.hot_auction_ratio, description="of so many bids, all but one are on a hot auction"
    )
    hot_seller_ratio: _Ratio = Field(
        default=STANDARD.hot_seller_ratio, description="of so many auctions, all but one are of a hot seller"
    )
    hot_bidder_ratio: _Ratio = Field(
        default=STANDARD.hot_bidder_ratio, description="of so many bids, all but one are of a hot bidder"
    )
    auctions_in_flight: _Ratio = Field(
        default=STANDARD.auctions_in_flight, description="how many of the newest auctions are bid on"
    )
    active_people: _Ratio = Field(
        default=STANDARD.active_people, description="how many of the newest persons bid and sell"
    )
    seed: NonNegativeInt = Field(default=0, description="another one gives other values")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.max_delay is not None and self.out_of_order > 1:
            raise ValueError("the options out_of_order and max_delay say the same in two ways: give one of them")
        return self

    @property
    def interval_us(self) -> float:
        """The event time between two events."""
        if self.inter_event_delay is not None:
            return microseconds_of(self.inter_event_delay)
        return microseconds_of(_DELAY) if self.event_rate is None else 1_000_000 / self.event_rate

    @property
    def timeline(self) -> Timeline:
        interval = self.interval_us
        group = self.out_of_order
        if self.max_delay is not None:
            group = 1 + int(microseconds_of(self.max_delay) // interval)
        return Timeline(microseconds_of(self.base_time), interval, group, self.events)

    @property
    def shape(self) -> Shape:
        return Shape(
            self.hot_auction_ratio,
            self.hot_seller_ratio,
            self.hot_bidder_ratio,
            self.auctions_in_flight,
            self.active_people,
            self.seed,
        )


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
        return generated_source(
            _Rows(spec.schema, options.timeline, options.shape),
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
    shape: Shape

    def begin(self, number: int) -> None:
        return

    def generate(self, numbers: Numbers) -> pa.RecordBatch:
        return generate_events(self.schema, numbers, self.timeline, self.shape)

    def time_us(self, number: int) -> int | None:
        return None


def generate_events(
    schema: pa.Schema, positions: Numbers, timeline: Timeline, shape: Shape = STANDARD
) -> pa.RecordBatch:
    """The events at given places of the stream, with the columns and members of the schema and no others."""
    events = Events(timeline.numbers(positions), timeline, shape)
    arrays = [
        pa.array(events.times, TIMESTAMP_TYPE) if column.name == TIMESTAMP_COLUMN else generate_column(column, events)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
