"""The rows of impulse do not depend on its parallelism, and come when they are due."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pyarrow as pa
import pytest

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
