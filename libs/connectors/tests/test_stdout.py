"""Rows come out as JSON lines when they are flushed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.stdout import Stdout
from penstock.connectors.testing import table_spec


async def test_rows_are_lines_of_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    spec = table_spec(pa.schema([("a", pa.int64())]))
    sink = Stdout().open_sink(spec)
    await sink.write(pa.RecordBatch.from_pylist([{"a": 1, "_timestamp": 0}, {"_timestamp": 0}], schema=spec.schema))
    await sink.flush()
    # Servers that other tests share may log there at the same time.
    lines = [line for line in capfdbinary.readouterr().out.splitlines() if line.startswith(b"{")]
    assert lines == [b'{"a":1}', b'{"a":null}']
    await sink.close()
