"""A process that calls an async function for rows that come by a pipe, many at a time.

A frame is its length in four bytes, and then a batch without its schema, which both sides know. Rows count from 0 on.
The first frame that comes is JSON, and says which function; the first that goes says that it is there, or why not.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.common.arrow import leave_pandas_out
from penstock.common.udfs import Shape
from penstock.udf import sources
from penstock.udf.calling import Results, SourceFunction, loaded, values_of
from penstock.udf.tracebacks import users_traceback

LENGTH: Final = struct.Struct(">I")
_GATHER_SECONDS: Final = 0.002  # results that come closely after each other go together
_BACKOFF_SECONDS: Final = 0.05
_LONGEST_BACKOFF_SECONDS: Final = 5.0
_STREAM_BYTES: Final = 1 << 20
_WATCH_SECONDS: Final = 1.0


def results_schema(returns: pa.DataType) -> pa.Schema:
    """What comes back: of some rows their numbers, values, and how the function failed for those that it did."""
    return pa.schema([("row", pa.int64()), ("value", returns), ("error", pa.string())])


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How a function is called."""

    in_flight: int
    timeout_seconds: float
    retries: int
    ordered: bool
    """Whether results go back in the order of the rows."""


class Calls:
    """Calls a function for rows, so many at once."""

    def __init__(self, function: SourceFunction, settings: CallSettings) -> None:
        found = loaded(function)
        self._source = function
        self._function: Callable[..., Awaitable[Any]] = found.function
        self._parameters = found.parameters
        self._needed = [place for place, value in enumerate(found.parameters) if not value.optional]
        self._results = Results(found)
        self._settings = settings
        self.schema = results_schema(found.signature.returns)
        self._rows: asyncio.Queue[tuple[int, tuple[Any, ...]]] = asyncio.Queue(settings.in_flight)
        self._done: list[tuple[int, Any, str | None]] = []
        self._any_done = asyncio.Event()
        self._next = 0
        self._waiting: dict[int, tuple[int, Any, str | None]] = {}

    async def submit(self, first: int, batch: pa.RecordBatch) -> None:
        """Has the function called for the rows of a batch; waits while too many are ahead of them."""
        columns = [values_of(array, value) for array, value in zip(batch.columns, self._parameters, strict=False)]
        rows = zip(*columns, strict=True) if self._parameters else (() for _ in range(batch.num_rows))
        for number, row in enumerate(rows, first):
            if any(row[place] is None for place in self._needed):
                self._finish(number, None, None)
            else:
                await self._rows.put((number, row))

    async def work(self) -> None:
        """Calls the function for one row after the other."""
        while True:
            number, row = await self._rows.get()
            try:
                self._finish(number, await self._called(row), None)
            except Exception as error:
                sources.note_lines(self._source.source, self._source.file)
                self._finish(number, None, users_traceback(error))

    async def _called(self, row: tuple[Any, ...]) -> Any:
        settings = self._settings
        for attempt in range(settings.retries + 1):
            try:
                async with asyncio.timeout(settings.timeout_seconds) as limit:
                    return await self._function(*row)
            except Exception as error:
                if attempt == settings.retries:
                    if limit.expired():
                        raise TimeoutError(f"no result within {settings.timeout_seconds:g} s") from error
                    raise
            await asyncio.sleep(min(_BACKOFF_SECONDS * 2**attempt, _LONGEST_BACKOFF_SECONDS))
        raise AssertionError("unreachable")

    def _finish(self, number: int, value: Any, error: str | None) -> None:
        self._done.append((number, value, error))
        self._any_done.set()

    async def finished(self) -> pa.RecordBatch:
        """Waits for results, and gives those that are there."""
        while True:
            await self._any_done.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._any_done.clear()
            done, self._done = self._done, []
            ready = self._in_order(done) if self._settings.ordered else done
            if ready:
                return self._batch(ready)

    def _in_order(self, done: list[tuple[int, Any, str | None]]) -> list[tuple[int, Any, str | None]]:
        self._waiting.update((one[0], one) for one in done)
        ready = []
        while self._next in self._waiting:
            ready.append(self._waiting.pop(self._next))
            self._next += 1
        return ready

    def _batch(self, ready: Sequence[tuple[int, Any, str | None]]) -> pa.RecordBatch:
        numbers, values, errors = ([*column] for column in zip(*ready, strict=True))
        try:
            array = self._results.array(values)
        except Exception as error:
            array = pa.nulls(len(values), self.schema.field("value").type)
            errors = [one or users_traceback(error) for one in errors]
        return pa.record_batch(
            [pa.array(numbers, pa.int64()), array, pa.array(errors, pa.string())], schema=self.schema
        )


async def serve(request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Calls until no more rows come, and all have their results."""
    sys.path[:0] = request["path"]
    try:
        function = SourceFunction(request["source"], request["file"], request["name"], Shape.ASYNC)
        calls = Calls(function, CallSettings(**request["settings"]))
    except BaseException as error:
        return await _send(writer, json.dumps({"error": users_traceback(error)}).encode())
    if "pandas" not in sys.modules:
        leave_pandas_out()  # else it is imported with the first results, while other calls wait and run out of time
    await _send(writer, b"{}")
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(request["schema"])))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(request["settings"]["in_flight"]):
            tasks.create_task(calls.work())
        tasks.create_task(_answer(calls, writer))
        await _submit(calls, schema, reader)
        os._exit(0)  # whoever sent the rows is gone, or wants no more


async def _submit(calls: Calls, schema: pa.Schema, reader: asyncio.StreamReader) -> None:
    first = 0
    while frame := await _receive(reader):
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame), schema)
        await calls.submit(first, batch)
        first += batch.num_rows


async def _answer(calls: Calls, writer: asyncio.StreamWriter) -> None:
    while True:
        await _send(writer, (await calls.finished()).serialize())


async def _send(writer: asyncio.StreamWriter, payload: Any) -> None:
    writer.writelines([LENGTH.pack(len(payload)), memoryview(payload)])
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    """A frame; empty at the end."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return b""


def _end_with(parent: int) -> None:
    """Ends this process with the one that started it, whatever the function does meanwhile."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


async def main() -> None:
    """Serves the process that started this one, over what are its standard input and output; the function has none."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_STREAM_BYTES)
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, outgoing)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    await serve(json.loads(await _receive(reader)), reader, writer)


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
