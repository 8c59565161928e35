"""The connector `stdout`: rows as JSON lines on the standard output of the worker."""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.connectors.base import EncodeOptions, Options, Role, Sink, SinkKind, Source, SourceKind, TableSpec
from penstock.connectors.files import file_error
from penstock.connectors.formats.json import JsonEncoder
from penstock.connectors.options import read_options


class StdoutOptions(EncodeOptions):
    """The options of a table of `stdout`."""


class Stdout:
    """The standard output."""

    name: ClassVar[str] = "stdout"
    description: ClassVar[str] = "JSON lines on the worker's standard output"
    source: ClassVar[SourceKind | None] = None
    sink: ClassVar[SinkKind | None] = SinkKind(options=StdoutOptions)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return 1

    def open_source(self, spec: TableSpec) -> Source:
        raise InternalError("stdout has no sources")

    def open_sink(self, spec: TableSpec) -> Sink:
        options = read_options(self.name, StdoutOptions, spec.options)
        return _StdoutSink(JsonEncoder(spec.schema, options.timestamp_format))


class _StdoutSink:
    def __init__(self, encoder: JsonEncoder) -> None:
        self._encoder = encoder

    async def write(self, batch: pa.RecordBatch) -> None:
        await asyncio.to_thread(self._write, batch)

    async def flush(self) -> None:
        await asyncio.to_thread(self._flush)

    async def close(self) -> None:
        return

    def _write(self, batch: pa.RecordBatch) -> None:
        lines = self._encoder.encode(batch)
        try:
            sys.stdout.buffer.write(lines)
        except OSError as error:
            raise file_error("stdout", error) from error

    def _flush(self) -> None:
        try:
            sys.stdout.buffer.flush()
        except OSError as error:
            raise file_error("stdout", error) from error
