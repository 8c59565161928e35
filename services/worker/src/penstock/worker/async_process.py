"""A process that calls an async function of the user's: rows go there, and their results come back."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Final

import pyarrow as pa

from penstock.common.errors import ExternalError
from penstock.common.program import AsyncUdf
from penstock.spark import UdfError
from penstock.udf.serving import LENGTH, results_schema
from penstock.worker.functions import LoadedFunction

_START_SECONDS: Final = 60.0
_STREAM_BYTES: Final = 1 << 22
_SETTINGS: Final = "PENSTOCK"
_NO_ARGUMENT: Final = pa.schema([("_", pa.int8())])


class AsyncProcess:
    """The process of one subtask; it ends with the worker."""

    def __init__(self, process: asyncio.subprocess.Process, loaded: LoadedFunction, arguments: pa.Schema) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._to, self._from = process.stdin, process.stdout
        self._name = loaded.function.signature.name
        self._arguments = arguments
        self._catches = loaded.function.catches
        self._results = results_schema(loaded.function.signature.returns)

    @classmethod
    async def start(cls, kind: AsyncUdf, loaded: LoadedFunction, rows: pa.Schema) -> AsyncProcess:
        """Starts it, with its function loaded; raises UdfError when that fails."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "penstock.udf.serving"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_STREAM_BYTES,
            env={name: value for name, value in os.environ.items() if not name.upper().startswith(_SETTINGS)},
        )
        arguments = pa.schema([rows.field(name) for name in kind.arguments]) if kind.arguments else _NO_ARGUMENT
        started = cls(process, loaded, arguments)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await started._introduce(kind, loaded)
        except BaseException:
            await started.close()
            raise
        return started

    async def _introduce(self, kind: AsyncUdf, loaded: LoadedFunction) -> None:
        request = {
            "source": loaded.source,
            "file": loaded.file,
            "name": self._name,
            "path": [str(folder) for folder in loaded.path],
            "schema": self._arguments.serialize().to_pybytes().hex(),
            "settings": {
                "in_flight": kind.in_flight,
                "timeout_seconds": kind.timeout_ms / 1000,
                "retries": kind.retries,
                "ordered": kind.ordered,
            },
        }
        await self._send(memoryview(json.dumps(request).encode()))
        answer = json.loads(await self._receive())
        if "error" in answer:
            raise UdfError(f"the function {self._name} cannot be loaded: {answer['error']}")

    async def submit(self, batch: pa.RecordBatch) -> None:
        """Has the function called for rows; waits where too many are on their way."""
        if self._arguments is _NO_ARGUMENT:
            batch = pa.record_batch([pa.nulls(batch.num_rows, pa.int8())], schema=_NO_ARGUMENT)
        else:
            batch = pa.record_batch([batch.column(name) for name in self._arguments.names], schema=self._arguments)
        await self._send(memoryview(batch.serialize()))

    async def results(self) -> pa.RecordBatch:
        """The next results: `row`, counted from the first that was submitted, and `value`, with its error beside it
        where the function catches them. Else raises UdfError where it failed."""
        found = pa.ipc.read_record_batch(pa.py_buffer(await self._receive()), self._results)
        row, value, error = found.columns
        if self._catches:
            caught = pa.StructArray.from_arrays([value, error], ["value", "error"])
            return pa.record_batch([row, caught], ["row", "value"])
        if error.null_count < len(error):
            raise UdfError(f"a Python function failed: {error.drop_null()[0].as_py()}")
        return found

    async def close(self) -> None:
        """Ends it, whatever it does."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._to.close()

    async def _send(self, payload: memoryview) -> None:
        try:
            self._to.write(LENGTH.pack(len(payload)))
            self._to.write(payload)
            await self._to.drain()
        except ConnectionError:
            raise await self._lost() from None

    async def _receive(self) -> bytes:
        try:
            (length,) = LENGTH.unpack(await self._from.readexactly(LENGTH.size))
            return await self._from.readexactly(length)
        except asyncio.IncompleteReadError:
            raise await self._lost() from None

    async def _lost(self) -> ExternalError:
        code = await self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return ExternalError(f"the process that calls the function {self._name} ended with {how}")
