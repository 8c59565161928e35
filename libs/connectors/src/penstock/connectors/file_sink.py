"""Writes JSON lines to a file: several batches are encoded at a time, and written in their order."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Final

import pyarrow as pa

from penstock.connectors.files import file_error
from penstock.connectors.formats.json import JsonEncoder, TimestampFormat
from penstock.connectors.ordered import OrderedWork

_IN_FLIGHT: Final = 4


class FileSink:
    """All rows of a sink table; the first write or flush opens the file."""

    def __init__(self, schema: pa.Schema, path: str, *, append: bool, timestamp_format: TimestampFormat) -> None:
        self._encoder = JsonEncoder(schema, timestamp_format)
        self._path = path
        self._append = append
        self._file: int | None = None
        self._opening = threading.Lock()
        self._work: OrderedWork[pa.RecordBatch, list[memoryview]] = OrderedWork(
            self._encoder.encode_pieces, self._put, _IN_FLIGHT
        )

    async def write(self, batch: pa.RecordBatch) -> None:
        await self._ensure_open()
        await self._work.add(batch)

    async def flush(self) -> None:
        await self._ensure_open()
        await self._work.finish()

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
                    self._file = os.open(self._path, flags, 0o666)
        except FileNotFoundError as error:
            folder = os.path.dirname(self._path)
            raise file_error(self._path, error, hint=f"the folder {folder} does not exist; create it first") from error
        except OSError as error:
            raise file_error(self._path, error) from error

    def _put(self, pieces: list[memoryview]) -> None:
        assert self._file is not None
        try:
            for piece in pieces:
                while piece:
                    piece = piece[os.write(self._file, piece) :]
        except OSError as error:
            raise file_error(self._path, error) from error
