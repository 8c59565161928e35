"""A cancelled read loses nothing, and an error is not lost either."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from penstock.connectors.ahead import ReadAhead


async def test_results_come_in_order_until_none() -> None:
    results = iter([1, 2, 3, None, 4])
    ahead = ReadAhead(lambda: next(results))
    assert [await ahead.read() for _ in range(5)] == [1, 2, 3, None, None]
    await ahead.close()


async def test_a_cancelled_read_loses_no_result() -> None:
    going = threading.Event()
    results = iter([1, 2, None])

    def produce() -> int | None:
        going.wait()
        return next(results)

    ahead = ReadAhead(produce)
    read = asyncio.create_task(ahead.read())
    await asyncio.sleep(0)
    read.cancel()
    with pytest.raises(asyncio.CancelledError):
        await read
    going.set()
    assert [await ahead.read(), await ahead.read(), await ahead.read()] == [1, 2, None]


async def test_an_error_is_raised_by_the_read_that_meets_it() -> None:
    def produce() -> int | None:
        raise ValueError("broken")

    ahead = ReadAhead(produce)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            await ahead.read()
    await ahead.close()


async def test_close_waits_for_the_thread() -> None:
    calls = itertools.count()
    ahead = ReadAhead(lambda: next(calls))
    await ahead.read()
    await ahead.close()
    assert next(calls) == 2
    assert await ahead.read() is None
