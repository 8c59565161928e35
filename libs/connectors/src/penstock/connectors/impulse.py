"""The connector `impulse`: numbered rows at a rate, for tests and first steps.

The rows of a job do not depend on its parallelism: `message_count` is the number of rows of all subtasks together, and
their counters are 0, 1, 2, …, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from penstock.connectors.generated import generated_source
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
        share = Share(spec.subtask, spec.parallelism)
        rows = _Rows(spec, options)
        return generated_source(
            rows.generate,
            share,
            total=options.message_count,
            batch_rows=spec.batch_rows,
            event_rate=options.event_rate,
        )

    def open_sink(self, spec: TableSpec) -> Sink:
        raise InternalError("impulse has no sinks")


class _Rows:
    """The rows of given numbers; event times begin when the first are asked for, unless an option says when."""

    def __init__(self, spec: TableSpec, options: ImpulseOptions) -> None:
        self._schema = spec.schema
        self._subtask = spec.subtask
        self._interval = _interval_microseconds(options)
        self._start = None if options.start_time is None else microseconds_of(options.start_time)
        self._columns: Mapping[str, Callable[[Numbers], pa.Array]] = {
            "counter": pa.array,
            "subtask_index": lambda numbers: pa.array(np.full(len(numbers), self._subtask, np.int64)),
            TIMESTAMP_COLUMN: lambda numbers: pa.array(self._event_times(numbers), TIMESTAMP_TYPE),
        }

    def generate(self, numbers: Numbers) -> pa.RecordBatch:
        arrays = [self._columns[name](numbers) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _event_times(self, numbers: Numbers) -> Numbers:
        if self._start is None and self._interval is None:
            return np.full(len(numbers), now_microseconds(), np.int64)
        if self._start is None:
            self._start = now_microseconds()
        return self._start + (numbers * (self._interval or 0)).astype(np.int64)


def _interval_microseconds(options: ImpulseOptions) -> float | None:
    if options.event_time_interval is not None:
        return microseconds_of(options.event_time_interval)
    return None if options.event_rate is None else 1_000_000 / options.event_rate
