"""The connector `blackhole`: takes rows and forgets them, as slowly as it is told to."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
from pydantic import Field, PositiveFloat

from penstock.common.errors import InternalError
from penstock.connectors.base import Options, Role, Sink, SinkKind, Source, SourceKind, TableSpec
from penstock.connectors.options import read_options
from penstock.connectors.pacing import Throttle


class BlackholeOptions(Options):
    """The options of a table of `blackhole`."""

    rows_per_second: PositiveFloat | None = Field(
        default=None, description="of all subtasks together; none: without limit"
    )


class Blackhole:
    """Nothing at all."""

    name: ClassVar[str] = "blackhole"
    description: ClassVar[str] = "Takes rows and forgets them"
    source: ClassVar[SourceKind | None] = None
    sink: ClassVar[SinkKind | None] = SinkKind(options=BlackholeOptions)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        raise InternalError("blackhole has no sources")

    def open_sink(self, spec: TableSpec) -> Sink:
        rate = read_options(self.name, BlackholeOptions, spec.options).rows_per_second
        return BlackholeSink(None if rate is None else Throttle(rate / spec.parallelism))


class BlackholeSink:
    """Returns from a write when the rows are through the throttle."""

    def __init__(self, throttle: Throttle | None) -> None:
        self._throttle = throttle

    async def write(self, batch: pa.RecordBatch) -> None:
        if self._throttle is not None:
            await self._throttle.take(batch.num_rows)

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return
