"""Files that each have their own stretch of time are all counted, whatever their names and whoever reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from reference.cases import FULL
from reference.comparison import rows_of
from reference.memory import MemoryTables
from reference.runs import Cut, compiled, run_job

from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine

FILES: Final = 20
ROWS: Final = 100_000 if FULL else 5_000
STRETCH: Final = timedelta(minutes=10)
BEGIN: Final = datetime(2024, 3, 1, tzinfo=UTC)

ORDERS: Final = {
    "in_time": list(range(FILES)),
    "reversed": list(reversed(range(FILES))),
    "shuffled": random.Random(20).sample(range(FILES), FILES),
}


def write_files(folder: Path, order: Sequence[int]) -> None:
    """The file of place n in the order of names has the stretch of time `order[n]`."""
    step = STRETCH / ROWS
    for place, stretch in enumerate(order):
        begin = BEGIN + stretch * STRETCH
        with (folder / f"part-{place:02}.json").open("w") as file:
            file.writelines(f'{{"ts":"{(begin + row * step).isoformat()}","n":{row}}}\n' for row in range(ROWS))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("order", ORDERS)
async def test_every_row_of_every_file_is_counted(engine: Engine, tmp_path: Path, order: str, parallelism: int) -> None:
    write_files(tmp_path, ORDERS[order])
    table = f"""CREATE TABLE clicks (ts TIMESTAMP NOT NULL, n BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
      WITH (connector = 'filesystem', path = '{tmp_path}/*.json', type = 'source');"""
    query = """SELECT window.start AS began, n FROM (
      SELECT tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM clicks GROUP BY 1)"""
    program = await compiled(engine, query, table)
    results = MemoryTables.of_nothing()
    execution = await run_job(engine, program, Cut(parallelism, 8192), {**CONNECTORS, "preview": results})
    assert sum(metrics.late_rows for metrics in execution.metrics) == 0
    windows = rows_of(results.written)
    assert len({began for began, _ in windows}) == len(windows) == FILES * 10
    assert {count for _, count in windows} == {ROWS // 10}
