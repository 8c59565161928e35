"""Reads one subtask's range of a file of JSON lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.connectors.ahead import ReadAhead
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE, DecodeOptions, SourceBatch, TableSpec
from penstock.connectors.files import file_error
from penstock.connectors.formats.json import MAX_PAYLOAD_BYTES, Decoded, JsonDecoder, Rejected
from penstock.connectors.formats.line_blocks import FileBlock, Limits, LongLine, count_lines, find_blocks
from penstock.connectors.instants import now_microseconds
from penstock.connectors.rejects import BadPayload, dead_letters

METADATA: Final[Mapping[str, pa.DataType]] = {"file": pa.string(), "line": pa.int64(), "offset": pa.int64()}
"""The path as it was given, the line's number from 1 on, and where the line begins, in bytes."""

_SMALLEST_BLOCK: Final = 256 * 1024
_LARGEST_BLOCK: Final = 8 * 1024 * 1024
_GUESSED_ROW_BYTES: Final = 160
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class FileSource:
    """The lines that begin in one of as many equal ranges of a file as there are subtasks."""

    def __init__(self, spec: TableSpec, options: DecodeOptions, path: str) -> None:
        self._spec = spec
        self._options = options
        self._path = path
        decoded = [f for f in spec.schema if f.name != TIMESTAMP_COLUMN and f.name not in spec.metadata]
        self._decoder = JsonDecoder(pa.schema(decoded), max_line_bytes=options.max_line_bytes, parsers=spec.lines)
        self._resources = ExitStack()
        self._blocks: Iterator[FileBlock | LongLine] | None = None
        self._first_offset: int | None = None
        self._lines_before: int | None = None
        self._lines_read = 0
        self._ahead = ReadAhead(self._produce)

    async def read(self) -> SourceBatch | None:
        return await self._ahead.read()

    async def close(self) -> None:
        await self._ahead.close()
        self._decoder.close()
        self._resources.close()

    def _produce(self) -> SourceBatch | None:
        try:
            if self._blocks is None:
                self._blocks = self._open()
            block = next(self._blocks, None)
            return None if block is None else self._decode(block)
        except OSError as error:
            raise file_error(self._path, error) from error

    def _open(self) -> Iterator[FileBlock | LongLine]:
        file = self._resources.enter_context(Path(self._path).open("rb"))  # noqa: SIM115 - closed with the source
        size = os.fstat(file.fileno()).st_size
        subtask, parallelism = self._spec.subtask, self._spec.parallelism
        start, end = size * subtask // parallelism, size * (subtask + 1) // parallelism
        block_bytes = min(max(self._spec.batch_rows * _GUESSED_ROW_BYTES, _SMALLEST_BLOCK), _LARGEST_BLOCK)
        return find_blocks(file, start, end, Limits(block_bytes, self._options.max_line_bytes, MAX_PAYLOAD_BYTES))

    def _decode(self, block: FileBlock | LongLine) -> SourceBatch:
        if self._first_offset is None:
            self._first_offset = block.offset
        offset, first_line = block.offset, self._lines_read
        match block:
            case LongLine(_, head):
                decoded = self._decoder.decode(b"")
                rejected: tuple[Rejected, ...] = (Rejected(first_line, self._decoder.too_long, head),)
                self._lines_read += 1
            case FileBlock(file):
                if offset == 0 and FileBlock(file, 0, len(_BYTE_ORDER_MARK)).read() == _BYTE_ORDER_MARK:
                    block = block.behind(len(_BYTE_ORDER_MARK))
                    offset = block.offset
                decoded = self._decoder.decode(block, first_line)
                rejected = decoded.rejected
                self._lines_read += decoded.line_count
        refused = [BadPayload(self._position(bad.line), bad.reason, bad.payload) for bad in rejected]
        letters = dead_letters(self._spec.table, self._options.bad_data, refused)
        return SourceBatch(self._with_metadata(decoded, offset), len(refused), letters)

    def _with_metadata(self, decoded: Decoded, offset: int) -> pa.RecordBatch:
        """The rows with the columns that are not in the file."""
        arrays = [self._column(field, decoded, offset) for field in self._spec.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._spec.schema)

    def _column(self, field: pa.Field, decoded: Decoded, offset: int) -> Any:
        count = decoded.rows.num_rows
        match self._spec.metadata.get(field.name):
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
