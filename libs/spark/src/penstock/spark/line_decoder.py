"""Decodes blocks of JSON lines in the JVM, by a parser that takes only lines which leave no doubt."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from penstock.common.errors import PenstockError
from penstock.spark import failures
from penstock.spark.errors import FragmentClosed
from penstock.spark.wire import FRAME_HEADER, SOCKET_BYTES, Frame, Kind, header, json_frame

_LONGEST_LINE: Final = (1 << 31) - 1
_LEAST_UNESCAPED: Final = " "  # what comes before it in Unicode has to be escaped in JSON


class DecodedLines(NamedTuple):
    """What a block came to: the rows of the lines that were taken, in their order, and which lines were not."""

    rows: pa.RecordBatch
    line_count: int
    odd: npt.NDArray[np.int32]
    """The indexes of the lines that are not among the rows, in ascending order: right, wrong or empty ones."""


def can_decode(schema: pa.Schema) -> bool:
    """Whether the parser knows all types of a schema, and can tell its columns by their names."""
    return len(schema) > 0 and _are_decodable(list(schema))


def _are_decodable(fields: list[pa.Field]) -> bool:
    names = {field.name for field in fields}
    return len(names) == len(fields) and all(map(_is_plain, names)) and all(_is_decodable(f.type) for f in fields)


def _is_plain(name: str) -> bool:
    return '"' not in name and "\\" not in name and all(character >= _LEAST_UNESCAPED for character in name)


def _is_decodable(kind: pa.DataType) -> bool:
    if types.is_struct(kind):
        return _are_decodable(list(kind))
    if types.is_timestamp(kind):
        return bool(kind.unit == "us")
    scalar = (types.is_boolean, types.is_integer, types.is_float32, types.is_float64, types.is_string, types.is_date32)
    return any(is_kind(kind) for is_kind in scalar)


class LineDecoder:
    """One connection and one JVM thread, opened by the first block. It blocks: one thread at a time may use it, and
    not the one of the engine's event loop."""

    def __init__(
        self, schema: pa.Schema, max_line_bytes: int, socket_path: str, lost: Callable[[], PenstockError]
    ) -> None:
        """`lost` gives the error to raise when the connection broke."""
        self._schema = schema
        self._max_line_bytes = min(max_line_bytes, _LONGEST_LINE)
        self._socket_path = socket_path
        self._lost = lost
        self._socket: socket.socket | None = None
        self._closed = False

    def decode(self, block: bytes | memoryview) -> DecodedLines:
        """The rows of a block of complete lines; a longer line than the limit is odd."""
        return self._ask(header(Kind.LINES, 0, memoryview(block).nbytes), block)

    def decode_file(self, path: str, offset: int, length: int) -> DecodedLines:
        """The rows of a block of complete lines that the JVM reads from a file itself."""
        return self._ask(json_frame(Kind.FILE_LINES, {"path": path, "offset": offset, "length": length}), b"")

    def _ask(self, question: bytes, block: bytes | memoryview) -> DecodedLines:
        if self._closed:
            raise FragmentClosed("the decoder of lines is closed")
        try:
            connection = self._socket or self._connect()
            connection.sendall(question)
            connection.sendall(block)
            rows = pa.ipc.read_record_batch(self._receive(connection).payload, self._schema)
            lines = np.frombuffer(self._receive(connection).payload, np.int32)
        except OSError as error:
            self._disconnect()
            raise self._lost() from error
        return DecodedLines(rows, int(lines[0]), lines[1:])

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            connection.connect(self._socket_path)
            schema = self._schema.remove_metadata().serialize()
            connection.sendall(header(Kind.DECODE, self._max_line_bytes, schema.size) + schema.to_pybytes())
            self._receive(connection)
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        return connection

    def _receive(self, connection: socket.socket) -> Frame:
        kind, slot, length = FRAME_HEADER.unpack(_filled(connection, FRAME_HEADER.size))
        frame = Frame(Kind(kind), slot, _filled(connection, length))
        if frame.kind is Kind.FAILED:
            raise failures.error_of(frame.json(), sql="")
        return frame

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Frees the connection and the JVM's thread."""
        self._closed = True
        self._disconnect()


def _filled(connection: socket.socket, size: int) -> pa.Buffer:
    """The next bytes of a connection, in memory of their own, which Arrow arrays may point into."""
    buffer = pa.allocate_buffer(size)
    view = memoryview(buffer).cast("B")
    held = 0
    while held < size:
        count = connection.recv_into(view[held:], 0, socket.MSG_WAITALL)
        if count == 0:
            raise ConnectionError("the JVM closed the connection")
        held += count
    return buffer
