"""A preview sends rows on, without their event time."""

from __future__ import annotations

import pyarrow as pa

from penstock.connectors.preview import Preview
from penstock.connectors.testing import CollectingOutput, table_spec


async def test_rows_go_to_the_output() -> None:
    output = CollectingOutput()
    spec = table_spec(pa.schema([("a", pa.int64())]), output=output)
    sink = Preview().open_sink(spec)
    await sink.write(pa.RecordBatch.from_pylist([{"a": 1, "_timestamp": 0}], schema=spec.schema))
    await sink.flush()
    await sink.close()
    assert [batch.to_pylist() for batch in output.batches] == [[{"a": 1}]]
