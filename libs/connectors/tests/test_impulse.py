"""The rows of impulse do not depend on its parallelism, and come when they are due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from itertools import pairwise

import pyarrow as pa
import pytest

from penstock.connectors.base import Source
from penstock.connectors.impulse import Impulse, ImpulseOptions
from penstock.connectors.testing import batches_of, rows_of, table_spec

COLUMNS = Impulse().schema(ImpulseOptions())
assert COLUMNS is not None


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_counters_are_globally_unique_and_complete(parallelism: int) -> None:
    counters: list[int] = []
    for subtask in range(parallelism):
        spec = table_spec(COLUMNS, {"message_count": "1000"}, subtask=subtask, parallelism=parallelism, batch_rows=64)
        rows = await rows_of(Impulse().open_source(spec))
        assert set(rows["subtask_index"].to_pylist()) == {subtask}
        counters += rows["counter"].to_pylist()
    assert sorted(counters) == list(range(1000))


async def test_event_times_follow_the_interval_and_start() -> None:
    options = {"message_count": "3", "event_time_interval": "10s", "start_time": "2023-01-01T00:00:00Z"}
    rows = await rows_of(Impulse().open_source(table_spec(COLUMNS, options)))
    assert [str(value) for value in rows["_timestamp"]] == [
        "2023-01-01 00:00:00",
        "2023-01-01 00:00:10",
        "2023-01-01 00:00:20",
    ]


async def test_only_wanted_columns_are_made() -> None:
    spec = table_spec(pa.schema([]), {"message_count": "3"})
    assert (await rows_of(Impulse().open_source(spec))).column_names == ["_timestamp"]


async def test_a_rate_is_kept_and_rows_have_the_time_at_which_they_are_due() -> None:
    options = {"message_count": "300", "event_rate": "1000"}
    started_at, started_us = time.monotonic(), time.time_ns() // 1000
    batches = [batch.rows async for batch in batches_of(Impulse().open_source(table_spec(COLUMNS, options)))]
    seconds = time.monotonic() - started_at
    assert 0.29 <= seconds < 5
    assert 10 <= len(batches) <= 70
    times = pa.Table.from_batches(batches)["_timestamp"].cast(pa.int64()).to_pylist()
    assert {after - before for before, after in pairwise(times)} == {1000}
    assert 0 <= times[0] - started_us < 1_000_000


async def test_rows_come_soon_after_they_are_due() -> None:
    source = Impulse().open_source(table_spec(COLUMNS, {"event_rate": "1000", "message_count": "400"}))
    delays: list[int] = []
    async for batch in batches_of(source):
        now = time.time_ns() // 1000
        delays += [now - due for due in batch.rows["_timestamp"].cast(pa.int64()).to_pylist()]
    assert sorted(delays)[len(delays) // 2] < 50_000


async def test_a_cancelled_read_loses_no_row() -> None:
    source = Impulse().open_source(table_spec(COLUMNS, {"event_rate": "200", "message_count": "40"}))
    counters: list[int] = []
    while True:
        try:
            async with asyncio.timeout(0.003):
                batch = await source.read()
        except TimeoutError:
            continue
        if batch is None:
            break
        counters += batch.rows["counter"].to_pylist()
    assert counters == list(range(40))


def opened(
    options: Mapping[str, str], restored: Mapping[str, bytes] | None = None, subtask: int = 0, parallelism: int = 1
) -> Source:
    spec = table_spec(COLUMNS, options, subtask=subtask, parallelism=parallelism, batch_rows=100, restored=restored)
    return Impulse().open_source(spec)


async def times_of(source: Source, reads: int = 1) -> list[int]:
    """The event times of the next rows."""
    times: list[int] = []
    for _ in range(reads):
        batch = await source.read()
        assert batch is not None
        times += batch.rows["_timestamp"].cast(pa.int64()).to_pylist()
    return times


@pytest.mark.parametrize("rate", [{}, {"event_rate": "100000"}])
async def test_event_times_by_interval_go_on_where_they_were(rate: dict[str, str]) -> None:
    options = {"event_time_interval": "10s", **rate}
    source = opened(options)
    before = await times_of(source, 3)
    again = opened(options, opened(options, source.positions()).positions())
    times = before + await times_of(again, 3)
    assert {after - before for before, after in pairwise(times)} == {10_000_000}
    await source.close()
    await again.close()


async def test_no_event_time_goes_back_when_the_parallelism_changes() -> None:
    options = {"event_time_interval": "0.001ms"}
    sources = []
    for subtask in range(3):
        sources.append(opened(options, None, subtask, 3))
        await times_of(sources[-1], subtask + 1)
        await asyncio.sleep(0.01)
    latest = max([time for source in sources for time in await times_of(source)])
    restored = {name: position for source in sources for name, position in source.positions().items()}
    endless = opened(options, restored)
    while (batch := await endless.read(frozenset(range(1, endless.partitions)))) is not None and batch.partition != 0:
        pass
    assert batch is not None
    assert batch.rows["_timestamp"].cast(pa.int64())[0].as_py() > latest
    for source in (*sources, endless):
        await source.close()


async def test_a_rate_goes_on_from_now_and_does_not_hurry() -> None:
    options = {"event_rate": "1000"}
    source = opened(options)
    await times_of(source)
    restored = source.positions()
    await asyncio.sleep(0.3)
    again = opened(options, restored)
    now = time.time_ns() // 1000
    times = await times_of(again)
    assert len(times) < 100
    assert 0 <= times[0] - now < 100_000
    await source.close()
    await again.close()


async def test_rows_have_the_time_at_which_they_are_due_in_every_subtask() -> None:
    sources = [opened({"event_rate": "20"}, None, subtask, 4) for subtask in range(4)]
    now = time.time_ns() // 1000
    first = await asyncio.gather(*(times_of(source) for source in sources))
    for subtask, times in enumerate(first):
        assert abs(times[0] - now - subtask * 50_000) < 40_000
