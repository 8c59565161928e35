"""Windows beside batch engines: the query that DuckDB is asked has the answers that were worked out row by row."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from batch_engines import DuckDb
from window_events import HOP, TUMBLE, Window, expected_digest, write_events, written_digest


@pytest.mark.parametrize("window", [TUMBLE, HOP], ids=lambda window: window.name)
async def test_windows_made_of_panes_are_those_of_every_row_by_itself(window: Window, tmp_path: Path) -> None:
    events, results = tmp_path / "events", tmp_path / "results"
    write_events(events, 400_000, 2)
    results.mkdir()

    with duckdb.connect() as connection:
        await DuckDb(connection, events).run(window, results)

    rows, digest = expected_digest(events, window)
    assert rows > 0
    assert written_digest(results, window) == (rows, digest)
