from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.compiler.types import is_assignable, is_unitable, spark_name, user_name

PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int16(), True),
        (pa.float64(), pa.decimal128(10, 2), True),
        (pa.int32(), pa.string(), True),
        (pa.timestamp("us"), pa.string(), True),
        (pa.string(), pa.int32(), False),
        (pa.string(), pa.timestamp("us"), False),
        (pa.bool_(), pa.int32(), False),
        (pa.int64(), pa.timestamp("us"), False),
        (pa.date32(), pa.timestamp("us"), True),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), True),
        (pa.binary(), pa.string(), False),
        (pa.null(), PAIR, True),
        (PAIR, pa.string(), False),
        (PAIR, pa.struct([("x", pa.int64()), ("y", pa.string())]), True),
        (PAIR, pa.struct([("x", pa.int64())]), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.list_(pa.string()), pa.list_(pa.int64()), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), True),
    ],
)
def test_values_are_assigned_as_in_postgres(source: pa.DataType, target: pa.DataType, fits: bool) -> None:
    assert is_assignable(source, target) is fits


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [(pa.int32(), pa.float64(), True), (pa.int32(), pa.string(), False), (pa.null(), pa.string(), True)],
)
def test_sides_of_a_union_fit_each_other(one: pa.DataType, other: pa.DataType, fits: bool) -> None:
    assert is_unitable(one, other) is is_unitable(other, one) is fits


def test_names_of_types() -> None:
    kind = pa.struct([("a", pa.list_(pa.timestamp("us"))), ("b`c", pa.decimal128(5, 2))])
    assert spark_name(kind) == "STRUCT<`a`: ARRAY<TIMESTAMP_NTZ>, `b``c`: DECIMAL(5, 2)>"
    assert user_name(kind) == "STRUCT<a TIMESTAMP[], b`c DECIMAL(5, 2)>"
    assert spark_name(pa.uint64()) == "DECIMAL(20, 0)"
    assert user_name(pa.timestamp("ms")) == "TIMESTAMP"
