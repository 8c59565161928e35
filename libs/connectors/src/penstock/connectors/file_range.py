"""Reads the lines of a part of a file, block after block into rows of a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE, DecodeOptions, SourceBatch, TableSpec
from penstock.connectors.errors import FileError
from penstock.connectors.file_parts import FilePart
from penstock.connectors.files import file_error
from penstock.connectors.formats.json import MAX_PAYLOAD_BYTES, Decoded, JsonDecoder, Rejected
from penstock.connectors.formats.line_blocks import FileBlock, Limits, LongLine, count_lines, find_blocks
from penstock.connectors.instants import now_microseconds
from penstock.connectors.rejects import BadPayload, dead_letters

METADATA: Final[Mapping[str, pa.DataType]] = {"file": pa.string(), "line": pa.int64(), "offset": pa.int64()}
"""The path as it was given or found, the line's number from 1 on, and where the line begins, in bytes."""

_SMALLEST_BLOCK: Final = 256 * 1024
_LARGEST_BLOCK: Final = 8 * 1024 * 1024
_GUESSED_ROW_BYTES: Final = 160
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class LineTable:
    """What all files of a table share: how their lines become rows. Used by one thread at a time."""

    def __init__(self, spec: TableSpec, options: DecodeOptions) -> None:
        self.spec = spec
        self.options = options
        decoded = [f for f in spec.schema if f.name != TIMESTAMP_COLUMN and f.name not in spec.metadata]
        self.decoder = JsonDecoder(pa.schema(decoded), max_line_bytes=options.max_line_bytes, parsers=spec.lines)

    @property
    def block_bytes(self) -> int:
        """How much is read at a time."""
        return min(max(self.spec.batch_rows * _GUESSED_ROW_BYTES, _SMALLEST_BLOCK), _LARGEST_BLOCK)

    def no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.spec.schema)

    def close(self) -> None:
        self.decoder.close()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reading of a range has come: where it goes on, and how many lines have been read until there."""

    offset: int
    lines: int


class FileRange:
    """The lines that begin in a part of a file, from where it has been read on; open from the first read on."""

    def __init__(self, table: LineTable, part: FilePart) -> None:
        self._table = table
        self._part = part
        self._path = part.path
        self._file: BinaryIO | None = None
        self._end = 0
        self._blocks: Iterator[FileBlock | LongLine] = iter(())
        self._block_bytes = 0
        self._at: Progress | None = None
        self._first_offset: int | None = None
        self._lines_before = part.lines

    def read(self, progress: Progress | None, block_bytes: int | None = None) -> tuple[SourceBatch, Progress] | None:
        """The rows of the lines that follow, and how far that gets; None at the end of the range."""
        try:
            block = self._next_block(progress, block_bytes or self._table.block_bytes)
            if block is None:
                return None
            batch, line_count = self._decode(block, 0 if progress is None else progress.lines)
        except OSError as error:
            raise file_error(self._path, error) from error
        # A range has the lines that begin in it: behind the beginning of a long line the next one is found.
        length = block.length if isinstance(block, FileBlock) else 1
        self._at = Progress(block.offset + length, line_count + (0 if progress is None else progress.lines))
        return batch, self._at

    def position(self, progress: Progress | None) -> FilePart:
        """The part as it is after what has been read; without a progress it has ended."""
        if progress is None:
            return self._part.advanced(self._end, None, ended=True)
        lines = None if self._lines_before is None else self._lines_before + progress.lines
        return self._part.advanced(progress.offset, lines, ended=progress.offset >= self._end)

    def close(self) -> None:
        """Closes the file; reading goes on where a progress says, if it does."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_block(self, progress: Progress | None, block_bytes: int) -> FileBlock | LongLine | None:
        start = self._part.offset if progress is None else progress.offset
        file = self._open(start)
        if progress is None or progress != self._at or block_bytes != self._block_bytes:
            options = self._table.options
            limits = Limits(block_bytes, options.max_line_bytes, MAX_PAYLOAD_BYTES)
            self._blocks = find_blocks(file, start, self._end, limits)
            self._block_bytes = block_bytes
        block = next(self._blocks, None)
        if self._first_offset is None and block is not None:
            self._first_offset = block.offset
        return block

    def _open(self, offset: int) -> BinaryIO:
        if self._file is None:
            file = self._find(offset)
            size = os.fstat(file.fileno()).st_size
            end = size if self._part.end is None else self._part.end
            if size < max(offset, end):
                file.close()
                before = f"{offset} had been read" if size < offset else f"the job started with {end}"
                raise FileError(self._path, f"the file has become shorter: it has {size} bytes, and {before}")
            self._file, self._end, self._at = file, end, None
        return self._file

    def _find(self, offset: int) -> BinaryIO:
        try:
            return Path(self._path).open("rb")
        except FileNotFoundError as error:
            hint = f"the job has read {offset} bytes of it and goes on behind them" if offset else None
            raise file_error(self._path, error, hint=hint) from error

    def _decode(self, block: FileBlock | LongLine, first_line: int) -> tuple[SourceBatch, int]:
        decoder, offset = self._table.decoder, block.offset
        match block:
            case LongLine(_, head):
                decoded = decoder.decode(b"")
                rejected: tuple[Rejected, ...] = (Rejected(first_line, decoder.too_long, head),)
                line_count = 1
            case FileBlock(file):
                if offset == 0 and FileBlock(file, 0, len(_BYTE_ORDER_MARK)).read() == _BYTE_ORDER_MARK:
                    block = block.behind(len(_BYTE_ORDER_MARK))
                    offset = block.offset
                decoded = decoder.decode(block, first_line)
                rejected, line_count = decoded.rejected, decoded.line_count
        refused = [BadPayload(self._position(bad.line), bad.reason, bad.payload) for bad in rejected]
        spec, policy = self._table.spec, self._table.options.bad_data
        letters = dead_letters(spec.table, policy, refused)
        return SourceBatch(self._with_metadata(decoded, offset), len(refused), letters), line_count

    def _with_metadata(self, decoded: Decoded, offset: int) -> pa.RecordBatch:
        """The rows with the columns that are not in the file."""
        schema = self._table.spec.schema
        return pa.RecordBatch.from_arrays([self._column(field, decoded, offset) for field in schema], schema=schema)

    def _column(self, field: pa.Field, decoded: Decoded, offset: int) -> Any:
        count = decoded.rows.num_rows
        match self._table.spec.metadata.get(field.name):
            case "file":
                return pa.repeat(pa.scalar(self._path, field.type), count)
            case "line":
                return pa.array(decoded.row_lines + self._lines_before_range() + 1).cast(field.type)
            case "offset":
                return pa.array(decoded.row_offsets + offset).cast(field.type)
            case _ if field.name == TIMESTAMP_COLUMN:
                return pa.array(np.full(count, now_microseconds(), np.int64), TIMESTAMP_TYPE)
            case _:
                return decoded.rows.column(field.name)

    def _position(self, line: int) -> str:
        return f"{self._path}:{self._lines_before_range() + line + 1}"

    def _lines_before_range(self) -> int:
        """Counted when first asked for: only errors and the metadata column need it."""
        if self._lines_before is None:
            with Path(self._path).open("rb") as file:
                self._lines_before = count_lines(file, self._first_offset or 0)
        return self._lines_before
