from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from penstock.common.ids import Generation, JobId
from penstock.controller.output import OutputBuffer, OutputData, Outputs


def rows(number: int, count: int = 1, size: int = 10) -> OutputData:
    return OutputData("results", 0, count, f"{number}".encode().ljust(size))


SEQUENCE = count(1)


async def put_all(buffer: OutputBuffer, *data: OutputData) -> None:
    async with asyncio.timeout(1):
        for each in data:
            await buffer.put(each, Generation(1), next(SEQUENCE))


async def rest(reader: AsyncIterator[OutputData]) -> list[OutputData]:
    async with asyncio.timeout(1):
        return [data async for data in reader]


async def test_a_reader_gets_what_is_kept_then_what_comes_and_ends_with_the_job() -> None:
    buffer = OutputBuffer(10, 1000)
    await put_all(buffer, rows(1), rows(2))
    reader = buffer.read()
    assert await anext(reader) == rows(1)
    await put_all(buffer, rows(3))
    buffer.close()
    assert await rest(reader) == [rows(2), rows(3)]


async def test_what_is_sent_again_is_there_once_until_the_job_is_restarted() -> None:
    buffer = OutputBuffer(10, 1000)
    for generation, sequence in ((1, 1), (1, 1), (1, 2), (1, 1), (2, 1), (2, 1)):
        await buffer.put(rows(sequence), Generation(generation), sequence)
    buffer.close()
    assert await rest(buffer.read()) == [rows(1), rows(2), rows(1)]


@pytest.mark.parametrize("buffer", [OutputBuffer(2, 1000), OutputBuffer(100, 20)])
async def test_with_nobody_reading_the_oldest_are_dropped_and_counted(buffer: OutputBuffer) -> None:
    await put_all(buffer, *map(rows, range(5)))
    buffer.close()
    assert await rest(buffer.read()) == [rows(3), rows(4)]
    assert buffer.dropped == {("results", 0): 3}


async def test_with_a_reader_the_sender_waits_and_nothing_is_dropped() -> None:
    buffer = OutputBuffer(2, 1000)
    reader = buffer.read()
    await put_all(buffer, rows(0))
    assert await anext(reader) == rows(0)
    await put_all(buffer, rows(1))
    waiting = asyncio.create_task(put_all(buffer, *map(rows, range(2, 6))))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    seen = [await anext(reader) for _ in range(5)]
    await waiting
    assert seen == [rows(number) for number in range(1, 6)]
    assert not buffer.dropped


async def test_a_reader_that_leaves_no_longer_holds_up_the_sender() -> None:
    buffer = OutputBuffer(1, 1000)
    await put_all(buffer, rows(0))
    reader = buffer.read()
    await anext(reader)
    waiting = asyncio.create_task(put_all(buffer, rows(1)))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    await reader.aclose()  # type: ignore[attr-defined]
    await waiting


async def test_the_slowest_reader_sets_the_pace_and_each_gets_every_row() -> None:
    buffer = OutputBuffer(2, 1000)

    async def read(pause: float) -> list[OutputData]:
        seen = []
        async for data in buffer.read():
            seen.append(data)
            await asyncio.sleep(pause)
        return seen

    readers = [asyncio.create_task(read(pause)) for pause in (0, 0.001)]
    await asyncio.sleep(0)
    await put_all(buffer, *map(rows, range(50)))
    buffer.close()
    assert await asyncio.gather(*readers) == [[rows(number) for number in range(50)]] * 2


async def test_rows_that_are_more_than_the_whole_buffer_go_in_alone() -> None:
    buffer = OutputBuffer(2, 1000)
    await put_all(buffer, rows(0), rows(1, count=50))
    buffer.close()
    assert await rest(buffer.read()) == [rows(1, count=50)]


async def test_rows_of_the_last_jobs_that_ended_are_kept() -> None:
    outputs = Outputs(max_rows=10, max_bytes=1000, kept=2)
    jobs = [JobId.new() for _ in range(4)]
    for job in jobs:
        await put_all(outputs.of(job), rows(1))
    for job in jobs[:3]:
        outputs.close(job)
    assert [outputs.find(job) is not None for job in jobs] == [False, True, True, True]
    outputs.open(jobs[1])
    outputs.close(jobs[3])
    assert [outputs.find(job) is not None for job in jobs] == [False, True, True, True]


async def test_a_job_that_runs_again_goes_on_with_its_stream() -> None:
    outputs = Outputs(max_rows=10, max_bytes=1000, kept=2)
    job = JobId.new()
    await put_all(outputs.of(job), rows(1))
    outputs.close(job)
    outputs.open(job)
    reader = outputs.of(job).read()
    assert await anext(reader) == rows(1)
    await put_all(outputs.of(job), rows(2))
    assert await anext(reader) == rows(2)
