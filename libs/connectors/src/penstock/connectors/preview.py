"""The connector `preview`: sends rows to whoever watches the job."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.connectors.base import (
    TIMESTAMP_COLUMN,
    Options,
    OutputPort,
    Role,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    TableSpec,
)


class PreviewOptions(Options):
    """The options of a table of `preview`: it has none."""


class Preview:
    """The job's output in the console and on the command line."""

    name: ClassVar[str] = "preview"
    description: ClassVar[str] = "Shows rows to whoever watches the job"
    source: ClassVar[SourceKind | None] = None
    sink: ClassVar[SinkKind | None] = SinkKind(options=PreviewOptions)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        raise InternalError("preview has no sources")

    def open_sink(self, spec: TableSpec) -> Sink:
        return _PreviewSink(spec.output)


class _PreviewSink:
    def __init__(self, output: OutputPort) -> None:
        self._output = output

    async def write(self, batch: pa.RecordBatch) -> None:
        if TIMESTAMP_COLUMN in batch.schema.names:
            batch = batch.drop_columns([TIMESTAMP_COLUMN])
        await self._output.send(batch)

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return
