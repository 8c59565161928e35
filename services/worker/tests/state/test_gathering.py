from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.state.gathering import columns_of, gathered

_VALUES: dict[pa.DataType, list[object]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-1, 7],
    pa.int64(): [-(2**63), 5],
    pa.float64(): [0.5, -0.0],
    pa.timestamp("us", "UTC"): [0, 10**15],
    pa.date32(): [3, 20_000],
    pa.decimal128(20, 2): [Decimal("1.25"), Decimal("-12345678901234567.89")],
    pa.decimal256(60, 0): [Decimal(10**50), Decimal(-1)],
    pa.month_day_nano_interval(): [(1, 2, 3), (-1, 0, 2**40)],
    pa.string(): ["", "two words"],
    pa.binary(3): [b"abc", b"xyz"],
    pa.list_(pa.int64()): [[], [1, 2]],
    pa.struct([("x", pa.int64()), ("y", pa.string())]): [{"x": 1, "y": "a"}, {"x": None, "y": None}],
    pa.dictionary(pa.int32(), pa.string()): ["a", "b"],
    pa.null(): [None],
}


@st.composite
def parts(draw: st.DrawFn, kind: pa.DataType) -> list[tuple[pa.RecordBatch, list[int]]]:
    """Batches, each the middle of a longer one, and places in them, in any order and more than once."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        values = draw(st.sampled_from([_VALUES[kind], [*_VALUES[kind], None]]))
        cells = draw(st.lists(st.sampled_from(values), min_size=3, max_size=8))
        batch = pa.record_batch([pa.array(cells, kind), pa.array(range(len(cells)), pa.int64())], names=["a", "n"])
        batch = batch.slice(1, len(cells) - 2)
        found.append((batch, draw(st.lists(st.integers(0, batch.num_rows - 1), max_size=6))))
    return found


@pytest.mark.parametrize("kind", _VALUES, ids=str)
@given(data=st.data())
def test_rows_of_all_types_are_gathered_in_order(kind: pa.DataType, data: st.DataObject) -> None:
    chosen = data.draw(parts(kind))
    schema = pa.schema([("a", kind), ("n", pa.int64())])
    rows = gathered([(columns_of(batch), np.array(places, np.int64)) for batch, places in chosen], schema)
    rows.validate(full=True)
    assert rows.schema == schema
    taken = [batch.take(pa.array(places, pa.int64())) for batch, places in chosen]
    assert rows.to_pylist() == [row for part in taken for row in part.to_pylist()]
