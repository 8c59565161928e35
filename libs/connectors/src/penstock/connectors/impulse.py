"""The connector `impulse`: numbered rows at a rate, for tests and first steps.

The rows of a job do not depend on its parallelism: `message_count` is the number of rows of all subtasks together, and
their counters are 0, 1, 2, …, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
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
from penstock.connectors.instants import Instant, microseconds_of, now_microseconds
from penstock.connectors.options import read_options
from penstock.connectors.shares import Numbers, Share

_COLUMNS: Final = pa.schema(
    [pa.field("counter", pa.int64(), nullable=False), pa.field("subtask_index", pa.int64(), nullable=False)]
)


class ImpulseOptions(Options):
    """The options of a table of `impulse`."""

    event_rate: PositiveFloat | None = Field(
        default=None, description="rows a second of all subtasks; none: without limit"
    )
    message_count: PositiveInt | None = Field(
        default=None, description="rows of all subtasks together; none: without end"
    )
    event_time_interval: Duration | None = Field(
        default=None, description="the event time between two rows; none: the time at which a row is due"
    )
    start_time: Instant | None = Field(
        default=None, description="the event time of the first row; none: the job's start"
    )


class Impulse:
    """Numbered rows."""

    name: ClassVar[str] = "impulse"
    description: ClassVar[str] = "Numbered rows at a rate, for tests and first steps"
    source: ClassVar[SourceKind | None] = SourceKind(options=ImpulseOptions, metadata={})
    sink: ClassVar[SinkKind | None] = None

    def schema(self, options: Options) -> pa.Schema | None:
        return _COLUMNS

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        options = read_options(self.name, ImpulseOptions, spec.options)
        start = beginning(spec.restored, Share(spec.subtask, spec.parallelism))
        return generated_source(
            _Rows(spec, options, start.times_us),
            start,
            total=options.message_count,
            batch_rows=spec.batch_rows,
            event_rate=options.event_rate,
        )

    def open_sink(self, spec: TableSpec) -> Sink:
        raise InternalError("impulse has no sinks")


class _Rows:
    """The rows of given numbers, whose event times begin with the first read, or go on, unless an option says when."""

    def __init__(self, spec: TableSpec, options: ImpulseOptions, times_us: Sequence[tuple[int, int]]) -> None:
        self._schema = spec.schema
        self._subtask = spec.subtask
        self._interval = _interval_microseconds(options)
        self._is_when_due = options.event_time_interval is None and options.start_time is None
        self._start = None if options.start_time is None else microseconds_of(options.start_time)
        if times_us and self._interval is not None:  # the latest: no row comes before one that was given away
            self._start = max(time - self._since_start(number) for number, time in times_us)
        self._columns: Mapping[str, Callable[[Numbers], pa.Array]] = {
            "counter": pa.array,
            "subtask_index": lambda numbers: pa.array(np.full(len(numbers), self._subtask, np.int64)),
            TIMESTAMP_COLUMN: lambda numbers: pa.array(self._event_times(numbers), TIMESTAMP_TYPE),
        }

    def begin(self, number: int) -> None:
        if self._interval is None:
            return
        now = now_microseconds() - self._since_start(number)
        if self._start is None:
            self._start = now
        elif self._is_when_due:  # a job that was down goes on with rows of later times
            self._start = max(self._start, now)

    def generate(self, numbers: Numbers) -> pa.RecordBatch:
        arrays = [self._columns[name](numbers) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def time_us(self, number: int) -> int | None:
        return None if self._start is None or self._interval is None else self._start + self._since_start(number)

    def _event_times(self, numbers: Numbers) -> Numbers:
        if self._start is None:
            return np.full(len(numbers), now_microseconds(), np.int64)
        return self._start + (numbers * (self._interval or 0)).astype(np.int64)

    def _since_start(self, number: int) -> int:
        return int(number * (self._interval or 0))


def _interval_microseconds(options: ImpulseOptions) -> float | None:
    if options.event_time_interval is not None:
        return microseconds_of(options.event_time_interval)
    return None if options.event_rate is None else 1_000_000 / options.event_rate
