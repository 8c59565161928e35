"""`penstock run` that is interrupted, and run again with the same state."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

from harness import PENSTOCK, plain_environment

from penstock.common.testing import eventually

ROWS = 4000
SQL = """
SET checkpoint_interval = '500ms';
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '500', message_count = '{rows}');
CREATE TABLE counts (k BIGINT, n BIGINT) WITH (connector = 'single_file', type = 'sink', path = '{file}');
INSERT INTO counts SELECT counter % 5, count(*) FROM impulse GROUP BY 1, tumble(INTERVAL '200 milliseconds');
"""


async def test_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    file, query = tmp_path / "counts.json", tmp_path / "query.sql"
    query.write_text(SQL.format(rows=ROWS, file=file))

    async def run() -> asyncio.subprocess.Process:
        command = (str(PENSTOCK), "run", "--state-dir", str(tmp_path / "state"), str(query))
        return await asyncio.create_subprocess_exec(*command, env=plain_environment())

    async def some_are_written() -> bool:
        return file.exists() and file.stat().st_size > 0

    first = await run()
    try:
        await eventually(some_are_written, 60)
        first.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(first.wait(), 60) == 130
    finally:
        if first.returncode is None:
            first.kill()
    counted = sum(row["n"] for row in map(json.loads, file.read_text().splitlines()))
    assert 0 < counted < ROWS
    second = await run()
    assert await asyncio.wait_for(second.wait(), 90) == 0
    totals: Counter[int] = Counter()
    for row in map(json.loads, file.read_text().splitlines()):
        totals[row["k"]] += row["n"]
    assert totals == Counter({k: ROWS // 5 for k in range(5)})
