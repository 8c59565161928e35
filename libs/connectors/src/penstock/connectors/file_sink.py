"""Writes JSON lines to a file: several batches are encoded at a time, unless they are, and written in their order."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from penstock.connectors import durable
from penstock.connectors.base import LINES
from penstock.connectors.files import file_error, folder_error
from penstock.connectors.formats.json_encoder import JsonEncoder, TimestampFormat, memory_of
from penstock.connectors.ordered import OrderedWork

Encode = Callable[[pa.RecordBatch], list[memoryview]]

_IN_FLIGHT: Final = 4


def line_encoder(schema: pa.Schema, timestamp_format: TimestampFormat) -> Encode:
    """What makes complete lines of rows, in any thread."""
    is_encoded = schema.equals(LINES, check_metadata=True)
    return _written_lines if is_encoded else JsonEncoder(schema, timestamp_format).encode_pieces


class FileSink:
    """Rows in a file, which the first write or flush opens."""

    def __init__(self, encode: Encode, path: str, *, append: bool, prepare: Callable[[], None] = lambda: None) -> None:
        """`prepare` makes ready, in a thread, what the file needs."""
        self.path = path
        self._append = append
        self._prepare = prepare
        self._file: int | None = None
        self._opening = threading.Lock()
        self._work: OrderedWork[pa.RecordBatch, list[memoryview]] = OrderedWork(encode, self._put, _IN_FLIGHT)

    async def write(self, batch: pa.RecordBatch) -> None:
        await self._ensure_open()
        await self._work.add(batch)

    async def flush(self) -> None:
        await self._ensure_open()
        await self._work.finish()

    async def seal(self) -> int:
        """Makes all rows outlive the machine's end, and closes the file; returns its length."""
        await self.flush()
        length = await asyncio.to_thread(self._sync)
        await self.close()
        return length

    async def close(self) -> None:
        await self._work.close()
        if self._file is not None:
            await asyncio.to_thread(os.close, self._file)
            self._file = None

    async def _ensure_open(self) -> None:
        if self._file is None:
            await asyncio.to_thread(self._open)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if self._append else os.O_TRUNC)
        try:
            with self._opening:  # a call that was cancelled may still be at it
                if self._file is None:
                    self._prepare()
                    self._file = os.open(self.path, flags, 0o666)
        except FileNotFoundError as error:
            raise folder_error(self.path, error) from error
        except OSError as error:
            raise file_error(self.path, error) from error

    def _put(self, pieces: list[memoryview]) -> None:
        assert self._file is not None
        try:
            for piece in pieces:
                while piece:
                    piece = piece[os.write(self._file, piece) :]
        except OSError as error:
            raise file_error(self.path, error) from error

    def _sync(self) -> int:
        assert self._file is not None
        try:
            durable.sync(self._file)
            return os.fstat(self._file).st_size
        except OSError as error:
            raise file_error(self.path, error) from error


def _written_lines(batch: pa.RecordBatch) -> list[memoryview]:
    return memory_of(batch.column(0))
