"""The connector `single_file`: a file of newline-delimited JSON, read from end to end or written."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, cast

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
from penstock.connectors.file_lookup import FileLookup, FileLookupOptions, check_file_columns
from penstock.connectors.file_parts import FilePart, deal_ranges, first_ranges, restored_parts
from penstock.connectors.file_range import METADATA
from penstock.connectors.file_sink import FileSink, line_encoder
from penstock.connectors.file_target import FileTarget
from penstock.connectors.files import file_error
from penstock.connectors.files_source import FilesSource
from penstock.connectors.lookups import LookupKind, LookupSpec, LookupTable
from penstock.connectors.options import read_options
from penstock.connectors.staging import HiddenFiles, StagingFileSink


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
    description: ClassVar[str] = "A file of JSON lines, read to its end or written; or one that is looked up by its key"
    source: ClassVar[SourceKind | None] = SourceKind(options=FileSourceOptions, metadata=METADATA)
    sink: ClassVar[SinkKind | None] = SinkKind(options=FileSinkOptions, stages=True, takes_lines=True)
    lookup: ClassVar[LookupKind] = LookupKind(FileLookupOptions, is_local=True)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return 1 if role is Role.SINK else None

    def open_source(self, spec: TableSpec) -> Source:
        options = read_options(self.name, FileSourceOptions, spec.options)
        return FilesSource(spec, options, partial(_deal, options.path, spec))

    def open_sink(self, spec: TableSpec) -> Sink:
        options = read_options(self.name, FileSinkOptions, spec.options)
        encode = line_encoder(spec.schema, options.timestamp_format)
        if not spec.transactional:
            return FileSink(encode, options.path, append=options.append)
        folder, name = os.path.split(options.path)
        hidden = HiddenFiles(folder or ".", f".{name}.{spec.job}", spec.subtask, spec.parallelism)
        opened_at_ns = time.time_ns()
        target = FileTarget(options.path, append=options.append, opened_at_ns=opened_at_ns)
        return StagingFileSink(encode, hidden, target, spec.job, opened_at_ns)

    def check_lookup(self, options: Options, key: pa.Schema, values: pa.Schema) -> None:
        check_file_columns(cast("FileLookupOptions", options), pa.schema([*key, *values]))

    def open_lookup(self, spec: LookupSpec) -> LookupTable:
        return FileLookup(spec, read_options(self.name, FileLookupOptions, spec.options))


def _deal(path: str, spec: TableSpec) -> Sequence[FilePart]:
    if known := restored_parts(spec.restored):
        return deal_ranges(path, known, spec.subtask, spec.parallelism)
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise file_error(path, error) from error
    return first_ranges(path, size, spec.subtask, spec.parallelism)
