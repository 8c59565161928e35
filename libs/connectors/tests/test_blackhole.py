"""A blackhole is as slow as it is told to be."""

from __future__ import annotations

import time

import pyarrow as pa

from penstock.connectors.blackhole import Blackhole
from penstock.connectors.testing import table_spec

BATCH = pa.record_batch({"a": list(range(50))})


async def test_a_rate_is_kept_by_all_subtasks_together() -> None:
    sink = Blackhole().open_sink(table_spec(BATCH.schema, {"rows_per_second": "2000"}, parallelism=2))
    started_at = time.monotonic()
    for _ in range(4):
        await sink.write(BATCH)
    assert 0.2 <= time.monotonic() - started_at < 2
    await sink.flush()
    await sink.close()


async def test_without_a_rate_it_does_not_wait() -> None:
    sink = Blackhole().open_sink(table_spec(BATCH.schema))
    started_at = time.monotonic()
    for _ in range(1000):
        await sink.write(BATCH)
    assert time.monotonic() - started_at < 1
