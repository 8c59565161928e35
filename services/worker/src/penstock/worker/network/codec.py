"""Rows and signals as the payloads of frames."""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.worker.channels import Item
from penstock.worker.network.frames import BadFrame, Frame, FrameType, Route, encode_frame, encode_header
from penstock.worker.signals import Barrier, EndOfData, Watermark

Chunk: TypeAlias = bytes | pa.Buffer
Compression: TypeAlias = Literal["none", "lz4", "zstd"]
StreamSignal: TypeAlias = Watermark | Barrier | EndOfData
"""Those that leave their subtask."""

_INT64: Final = struct.Struct("<q")


class _Collector:
    """A file for Arrow to write to, which keeps the columns' own memory instead of a copy."""

    closed = False

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._size = 0

    def write(self, chunk: Chunk) -> int:
        size = len(chunk)
        self._chunks.append(chunk)
        self._size += size
        return size

    def take(self) -> tuple[list[Chunk], int]:
        """What was written since the last time, and its size."""
        taken = self._chunks, self._size
        self._chunks, self._size = [], 0
        return taken

    def flush(self) -> None: ...


class _Feed:
    """A file for Arrow to read from, which gives it parts of a payload instead of copies."""

    closed = False

    def __init__(self) -> None:
        self._payload = pa.py_buffer(b"")
        self._at = 0

    def give(self, payload: pa.Buffer) -> None:
        self._payload, self._at = payload, 0

    @property
    def left(self) -> int:
        return int(self._payload.size) - self._at

    def read(self, size: int) -> pa.Buffer:
        return self.read_buffer(size)

    def read_buffer(self, size: int) -> pa.Buffer:
        part = self._payload.slice(self._at, min(size, self.left))
        self._at += part.size
        return part


class RowsEncoder:
    """The batches of one channel as an Arrow stream, of which each frame is a piece: its schema is in the first."""

    def __init__(self, compression: Compression = "none") -> None:
        codec = None if compression == "none" else compression
        self._options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=False)
        self._collector = _Collector()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def encode(self, route: Route, batch: pa.RecordBatch) -> tuple[list[Chunk], int]:
        """A frame with a batch, as chunks that are written one after the other, and their size."""
        if self._writer is None:
            file = pa.PythonFile(self._collector, mode="w")
            self._writer = pa.ipc.new_stream(file, batch.schema, options=self._options)
        self._writer.write_batch(batch)
        chunks, length = self._collector.take()
        header = encode_header(FrameType.ROWS, route, length, rows=batch.num_rows)
        return [header, *chunks], len(header) + length


class RowsDecoder:
    """The batches of one channel out of their frames; raises BadFrame."""

    def __init__(self) -> None:
        self._feed = _Feed()
        self._reader: pa.ipc.RecordBatchStreamReader | None = None

    def decode(self, frame: Frame) -> pa.RecordBatch:
        self._feed.give(frame.payload)
        try:
            if self._reader is None:
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._feed, mode="r"))
            batch = self._reader.read_next_batch()
            batch.validate()
        except (pa.ArrowException, OSError, StopIteration, ValueError, TypeError, OverflowError) as error:
            raise BadFrame(f"rows that cannot be read: {error or type(error).__name__}") from error
        if self._feed.left or not batch.num_rows or batch.num_rows != frame.rows:
            raise BadFrame(f"a frame of {frame.rows} rows has {batch.num_rows}, and {self._feed.left} bytes too many")
        return batch


def encode_signal(route: Route, signal: Item) -> bytes:
    """A signal as a frame."""
    match signal:
        case Watermark(None):
            return encode_frame(FrameType.WATERMARK, route=route)
        case Watermark(at):
            return encode_frame(FrameType.WATERMARK, _INT64.pack(at), route)
        case Barrier(epoch, last):
            return encode_frame(FrameType.BARRIER, _INT64.pack(epoch), route, flag=last)
        case EndOfData(complete):
            return encode_frame(FrameType.END, route=route, flag=complete)
        case _:
            raise InternalError(f"{type(signal).__name__} stays inside a subtask")


def decode_signal(frame: Frame) -> StreamSignal:
    """The signal of a frame; raises BadFrame."""
    match frame.type:
        case FrameType.WATERMARK:
            return Watermark(_number(frame) if frame.payload.size else None)
        case FrameType.BARRIER:
            return Barrier(_number(frame), frame.flag)
        case FrameType.END:
            return EndOfData(frame.flag)
        case _:
            raise BadFrame(f"a frame of type {frame.type.name} is no signal")


def encode_grant(route: Route, taken: int, bound: int) -> bytes:
    """How many rows were taken in all, and how many may be on their way."""
    return encode_frame(FrameType.GRANT, _INT64.pack(taken), route, rows=bound)


def decode_grant(frame: Frame) -> tuple[int, int]:
    return _number(frame), frame.rows


def _number(frame: Frame) -> int:
    if frame.payload.size != _INT64.size:
        raise BadFrame(f"a frame of type {frame.type.name} has {frame.payload.size} bytes")
    (number,) = _INT64.unpack(frame.payload)
    return int(number)
