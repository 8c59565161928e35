"""The files of state tables: Parquet in the job's folder of the checkpoint storage.

A file is written and read a row group at a time, so that memory does not follow its size. All rows of a hash are in one
row group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.checkpoint.metadata import CorruptSnapshot
from penstock.common.errors import ObjectNotFound
from penstock.common.program import HASH_COLUMN
from penstock.common.proto.checkpoint_pb2 import StateFile
from penstock.common.storage import Storage
from penstock.worker.state.index import Int64s
from penstock.worker.state.tables import Frozen, kept_rows, of_last
from penstock.worker.state.times import microseconds

_COMPRESSION: Final = "lz4"
# Parts are put together until they are so large.
_GROUP_ROWS: Final = 1 << 17
_GROUP_BYTES: Final = 16 << 20
_END: Final = None


async def write(
    storage: Storage, path: str, parts: AsyncIterator[pa.Table], time_column: str | None
) -> StateFile | None:
    """Writes rows as a file; None when there is no part."""
    encoder = _Encoder(time_column)
    encoded = encoder.encoded(parts)
    first = await anext(encoded, _END)
    if first is _END:
        return None
    second = await anext(encoded, _END)
    # What is small is written in one piece, which costs a storage less.
    await storage.put(path, first if second is _END else _chained(first, second, encoded))
    return StateFile(path=path, rows=encoder.rows, bytes=encoder.bytes, last_time_us=encoder.last_time)


async def parts_of(frozen: Frozen) -> AsyncIterator[pa.Table]:
    """What was frozen, made to rows in threads."""
    parts = frozen.parts()
    while (part := await asyncio.to_thread(next, parts, _END)) is not _END:
        yield part


async def read(storage: Storage, file: StateFile, columns: Sequence[str] | None = None) -> AsyncIterator[pa.Table]:
    """The rows of a file, a row group at a time, of which the next is already read; one that is not what it should be
    is named."""
    name = f"the checkpoint's file {storage.url}/{file.path}"
    try:
        opened = await asyncio.to_thread(_opened, await storage.get(file.path))
        if opened.metadata.num_rows != file.rows:
            raise CorruptSnapshot(f"{name} has {opened.metadata.num_rows} rows, not {file.rows}")
        async for rows in _row_groups(opened, columns):
            yield rows
    except ObjectNotFound:
        raise CorruptSnapshot(f"{name} is missing") from None
    except (pa.ArrowException, OSError) as error:
        raise CorruptSnapshot(f"{name} cannot be read: {error}") from error


async def latest(storage: Storage, files: Sequence[StateFile], *, tombstones: bool) -> AsyncIterator[pa.Table]:
    """The rows of several files of rows by hash, the oldest first: of each hash those of the last file that has it."""
    # With a single file there is nothing to compare.
    hashes = [await _hashes_of(storage, file) for file in files] if len(files) > 1 else []
    masks = of_last(hashes) if hashes else [np.ones(file.rows, np.bool_) for file in files]
    for file, mask in zip(files, masks, strict=True):
        begin = 0
        async for rows in read(storage, file):
            end = begin + rows.num_rows
            if (kept := kept_rows(rows, mask[begin:end], tombstones=tombstones)).num_rows:
                yield kept
            begin = end


async def unexpired(
    storage: Storage, files: Sequence[StateFile], time_column: str, before: int
) -> AsyncIterator[pa.Table]:
    """The rows of several files of rows by time that are not of a time before a moment."""
    for file in files:
        async for rows in read(storage, file):
            kept = rows.filter(pa.array(microseconds(rows[time_column].combine_chunks()) >= before))
            if kept.num_rows:
                yield kept


def compactable(files: Sequence[StateFile], most: int) -> int | None:
    """Where the files begin that are to be made one: when there are many, the last ones, and before them each that is
    not twice as large as all behind it together, so that a byte is written only a few times."""
    if len(files) <= most:
        return None
    begin = len(files) - 2
    total = sum(file.bytes for file in files[begin:])
    while begin and files[begin - 1].bytes <= 2 * total:
        begin -= 1
        total += files[begin].bytes
    return begin


class _Encoder:
    """Makes Parquet of rows, and knows afterwards how many they were."""

    def __init__(self, time_column: str | None) -> None:
        self._time_column = time_column
        self._written = _Written()
        self.rows = 0
        self.bytes = 0
        self.last_time: int | None = None

    async def encoded(self, parts: AsyncIterator[pa.Table]) -> AsyncIterator[bytes]:
        writer: pq.ParquetWriter | None = None
        async for rows in _grouped(parts):
            if writer is None:
                writer = pq.ParquetWriter(self._written, rows.schema, compression=_COMPRESSION, use_dictionary=False)
            await asyncio.to_thread(self._write, writer, rows)
            if self._written.size >= _GROUP_BYTES:
                yield self._taken()
        if writer is not None:
            await asyncio.to_thread(writer.close)
            yield self._taken()

    def _write(self, writer: pq.ParquetWriter, rows: pa.Table) -> None:
        writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self.rows += rows.num_rows
        if self._time_column is not None:
            last = _last_time(rows, self._time_column)
            self.last_time = last if self.last_time is None else max(self.last_time, last)

    def _taken(self) -> bytes:
        taken = self._written.take()
        self.bytes += len(taken)
        return taken


class _Written:
    """A file that holds what was written since the last look."""

    closed = False

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._position = 0
        self.size = 0

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._chunks.append(chunk)
        self._position += len(chunk)
        self.size += len(chunk)
        return len(chunk)

    def take(self) -> bytes:
        taken, self._chunks, self.size = b"".join(self._chunks), [], 0
        return taken

    def tell(self) -> int:
        return self._position

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


async def _grouped(parts: AsyncIterator[pa.Table]) -> AsyncIterator[pa.Table]:
    """Small parts together."""
    group: list[pa.Table] = []
    rows = size = 0
    async for part in parts:
        if group and (rows + part.num_rows > _GROUP_ROWS or size + part.nbytes > _GROUP_BYTES):
            yield pa.concat_tables(group)
            group, rows, size = [], 0, 0
        group.append(part)
        rows += part.num_rows
        size += part.nbytes
    if group:
        yield pa.concat_tables(group)


async def _chained(first: bytes, second: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    yield second
    async for chunk in rest:
        yield chunk


async def _hashes_of(storage: Storage, file: StateFile) -> Int64s:
    parts = [rows[HASH_COLUMN].to_numpy() async for rows in read(storage, file, [HASH_COLUMN])]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


async def _row_groups(file: pq.ParquetFile, columns: Sequence[str] | None) -> AsyncIterator[pa.Table]:
    def start(number: int) -> asyncio.Task[pa.Table]:
        return asyncio.create_task(asyncio.to_thread(file.read_row_group, number, columns, use_threads=False))

    if not file.num_row_groups:
        return
    reading = start(0)
    try:
        for number in range(1, file.num_row_groups):
            rows = await reading
            reading = start(number)
            yield rows
        yield await reading
    finally:
        reading.cancel()


def _opened(content: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(content))


def _last_time(rows: pa.Table, column: str) -> int:
    return max((int(np.max(microseconds(chunk))) for chunk in rows[column].chunks if len(chunk)), default=0)
