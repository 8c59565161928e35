"""The process of an async function: results, order, retries, timeouts and failures, and that it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest

from penstock.common.errors import ExternalError
from penstock.common.program import AsyncUdf, Function
from penstock.common.udfs import Shape, Signature, Style
from penstock.spark import UdfError
from penstock.worker.async_process import AsyncProcess
from penstock.worker.functions import LoadedFunction

ROWS: Final = pa.schema([("a", pa.int64())])
KIND: Final = AsyncUdf("f__1", ("a",), "r", ordered=True, in_flight=10, timeout_ms=5000, retries=0)


@asynccontextmanager
async def process(body: str, **changes: Any) -> AsyncIterator[AsyncProcess]:
    source = f"import asyncio, os\nseen = {{}}\nasync def f(a: int) -> int:\n    {body}\n"
    parameters = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    signature = Signature("f", Shape.ASYNC, Style.PLAIN, parameters, pa.int64())
    loaded = LoadedFunction(Function("f__1", signature, "0"), source, ())
    started = await AsyncProcess.start(replace(KIND, **changes), loaded, ROWS)
    try:
        yield started
    finally:
        await started.close()


async def results(started: AsyncProcess, *values: int | None) -> list[tuple[int, int | None]]:
    await started.submit(pa.record_batch([pa.array(values, pa.int64())], schema=ROWS))
    found: list[tuple[int, int | None]] = []
    async with asyncio.timeout(60):
        while len(found) < len(values):
            batch = await started.results()
            found += zip(batch.column("row").to_pylist(), batch.column("value").to_pylist(), strict=True)
    return found


async def test_results_come_in_the_order_of_the_rows_and_nulls_are_not_asked_about() -> None:
    async with process("await asyncio.sleep(0.01 * (5 - a)); return a * 2") as started:
        assert await results(started, 1, None, 3, 4) == [(0, 2), (1, None), (2, 6), (3, 8)]


async def test_results_in_any_order_come_as_they_are_there() -> None:
    async with process("await asyncio.sleep(0.3 * (2 - a)); return a", ordered=False) as started:
        assert await results(started, 0, 1, 2) == [(2, 2), (1, 1), (0, 0)]


async def test_no_more_calls_are_made_at_once_than_may_be() -> None:
    body = "seen['n'] = seen.get('n', 0) + 1; most = seen['n']; await asyncio.sleep(0.02); seen['n'] -= 1; return most"
    async with process(body, in_flight=3) as started:
        assert max(value or 0 for _, value in await results(started, *range(20))) == 3


async def test_first_results_import_nothing_that_other_calls_would_have_to_wait_for() -> None:
    async with process("import sys; return int('pandas' in sys.modules)") as started:
        assert await results(started, 1) == [(0, 0)]
        assert await results(started, 2) == [(1, 0)]


async def test_call_that_fails_is_made_again() -> None:
    body = "seen[a] = seen.get(a, 0) + 1\n    if seen[a] < 3: raise ValueError('not yet')\n    return seen[a]"
    async with process(body, retries=2) as started:
        assert await results(started, 7, 8) == [(0, 3), (1, 3)]


async def test_failure_is_the_users_error_with_the_lines_of_the_function() -> None:
    async with process("return 1 // a") as started:
        with pytest.raises(UdfError) as raised:
            await results(started, 1, 0)
    lines = raised.value.message.splitlines()
    assert lines[0] == "a Python function failed: Traceback (most recent call last):"
    assert lines[1].strip() == 'File "f.py", line 4, in f'
    assert lines[2].strip() == "return 1 // a"
    assert lines[-1].startswith("ZeroDivisionError")


async def test_call_that_takes_too_long_fails() -> None:
    async with process("await asyncio.sleep(60); return a", timeout_ms=100) as started:
        with pytest.raises(UdfError, match=r"TimeoutError: no result within 0.1 s"):
            await results(started, 1)


async def test_result_of_another_type_than_the_hint_says_is_the_users_error() -> None:
    async with process("return 'x'") as started:
        with pytest.raises(UdfError, match="f returned 'x', a str"):
            await results(started, 1)


async def test_process_that_ends_by_itself_is_told() -> None:
    async with process("os._exit(7)") as started:
        with pytest.raises(ExternalError, match="ended with exit code 7"):
            await results(started, 1)


async def test_source_that_cannot_be_loaded_is_the_users_error() -> None:
    with pytest.raises(UdfError, match="no_such_module"):
        async with process("return a\nimport no_such_module"):
            pass
