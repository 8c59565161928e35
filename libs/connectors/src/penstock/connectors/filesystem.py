"""The connector `filesystem`: files of newline-delimited JSON, of a folder or that match a pattern, or in a folder."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

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
from penstock.connectors.errors import FileError
from penstock.connectors.file_parts import FilePart, deal_files, restored_parts
from penstock.connectors.file_range import METADATA
from penstock.connectors.file_sink import FileSink, line_encoder
from penstock.connectors.files import file_error
from penstock.connectors.files_source import FilesSource
from penstock.connectors.folder_target import FolderTarget, Parts
from penstock.connectors.options import read_options
from penstock.connectors.staging import HiddenFiles, StagingFileSink

_HINT: Final = "a folder, or a pattern such as clicks/**/*.json, is looked up on the machine of the worker"


class FilesystemSourceOptions(DecodeOptions):
    """The options of a source table of `filesystem`."""

    path: str = Field(min_length=1, description="a folder, or a pattern with *, ?, [] and ** for folders in folders")


class FilesystemSinkOptions(EncodeOptions):
    """The options of a sink table of `filesystem`."""

    path: str = Field(min_length=1, description="the folder; the one that it is in must exist")
    append: bool = Field(
        default=False, description="leave files that are there; otherwise a job's start removes the table's"
    )


class Filesystem:
    """Files that are there when the job starts, each a partition, read to their ends; or files that it writes."""

    name: ClassVar[str] = "filesystem"
    description: ClassVar[str] = (
        "Files of JSON lines in a folder, or that match a pattern, read to their ends or written"
    )
    source: ClassVar[SourceKind | None] = SourceKind(options=FilesystemSourceOptions, metadata=METADATA)
    sink: ClassVar[SinkKind | None] = SinkKind(options=FilesystemSinkOptions, stages=True, takes_lines=True)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        options = read_options(self.name, FilesystemSourceOptions, spec.options)
        return FilesSource(spec, options, partial(_deal, options.path, spec))

    def open_sink(self, spec: TableSpec) -> Sink:
        options = read_options(self.name, FilesystemSinkOptions, spec.options)
        encode = line_encoder(spec.schema, options.timestamp_format)
        parts = Parts(options.path, spec.job, append=options.append)
        if not spec.transactional:
            prepare = partial(parts.make_ready, spec.subtask, spec.parallelism)
            return FileSink(encode, parts.direct_path(spec.subtask), append=options.append, prepare=prepare)
        hidden = HiddenFiles(options.path, f".{spec.job}", spec.subtask, spec.parallelism)
        opened_at_ns = time.time_ns()
        target = FolderTarget(parts, spec.job, spec.subtask, spec.parallelism, opened_at_ns)
        return StagingFileSink(encode, hidden, target, spec.job, opened_at_ns)


def find_files(path: str, *, or_none: bool = False) -> Sequence[str]:
    """The files of a folder, or that match a pattern, sorted by name; hidden ones are left out."""
    is_folder = os.path.isdir(path)
    found = _files_of(path) if is_folder else list(filter(os.path.isfile, glob.glob(path, recursive=True)))
    if not found and not or_none:
        raise FileError(path, "there is no file in this folder" if is_folder else "no file matches", hint=_HINT)
    return sorted(found)


def _files_of(folder: str) -> Sequence[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if not entry.name.startswith(".") and entry.is_file()]
    except OSError as error:
        raise file_error(folder, error) from error


def _deal(path: str, spec: TableSpec) -> Sequence[FilePart]:
    """Where a job goes on, there need not be any file: it may have read them all."""
    known = restored_parts(spec.restored)
    return deal_files(find_files(path, or_none=bool(known)), known, spec.subtask, spec.parallelism)
