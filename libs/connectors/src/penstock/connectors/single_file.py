"""The connector `single_file`: a file of newline-delimited JSON, read from end to end or written."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
from pydantic import Field

from penstock.connectors.base import (
    DecodeOptions,
    EncodeOptions,
    Options,
    Role,
    Sink,
    SinkKind,
    Source,
    SourceKind,
    TableSpec,
)
from penstock.connectors.file_sink import FileSink
from penstock.connectors.file_source import METADATA, FileSource
from penstock.connectors.options import read_options


class FileSourceOptions(DecodeOptions):
    """The options of a source table of `single_file`."""

    path: str = Field(min_length=1, description="the file")


class FileSinkOptions(EncodeOptions):
    """The options of a sink table of `single_file`."""

    path: str = Field(min_length=1, description="the file; its folder must exist")
    append: bool = Field(default=False, description="add to a file that exists; otherwise a job's start replaces it")


class SingleFile:
    """One file."""

    name: ClassVar[str] = "single_file"
    description: ClassVar[str] = "A file of JSON lines, read to its end or written"
    source: ClassVar[SourceKind | None] = SourceKind(options=FileSourceOptions, metadata=METADATA)
    sink: ClassVar[SinkKind | None] = SinkKind(options=FileSinkOptions)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None if role is Role.SOURCE else 1

    def open_source(self, spec: TableSpec) -> Source:
        options = read_options(self.name, FileSourceOptions, spec.options)
        return FileSource(spec, options, options.path)

    def open_sink(self, spec: TableSpec) -> Sink:
        options = read_options(self.name, FileSinkOptions, spec.options)
        return FileSink(spec.schema, options.path, append=options.append, timestamp_format=options.timestamp_format)
