"""What tests of this library and of those that use it share."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from penstock.common.config import load_config
from penstock.spark.settings import SparkSettings


def spark_settings(**changes: object) -> SparkSettings:
    """The default settings, whatever the environment says, on two cores."""
    settings = load_config(environment={}).section("spark", SparkSettings)
    return settings.model_copy(update={"master": "local[2]", **changes})


def _close(one: Any, other: Any) -> bool:
    """Equal, but for what the order of a sum does to a float."""
    match one, other:
        case float(), float():
            return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(one) and math.isnan(other))
        case dict(), dict():
            return one.keys() == other.keys() and all(_close(value, other[key]) for key, value in one.items())
        case (list(), list()) | (tuple(), tuple()):
            return len(one) == len(other) and all(map(_close, one, other))
        case _:
            return type(one) is type(other) and bool(one == other)


def _place(value: Any) -> str:
    """A text to sort rows by, in which floats that are close are the same."""
    match value:
        case float():
            return f"{value:.5g}"
        case dict():
            return str([_place(inner) for inner in value.values()])
        case list() | tuple():
            return str([_place(inner) for inner in value])
        case _:
            return repr(value)


def assert_same_rows(expected: pa.RecordBatch, actual: pa.RecordBatch, ordered: bool) -> None:
    """The same schema and rows, in the same order or in any."""
    assert actual.schema == expected.schema
    one, other = (rows if ordered else sorted(rows, key=_place) for rows in (expected.to_pylist(), actual.to_pylist()))
    assert len(one) == len(other)
    assert [pair for pair in zip(one, other, strict=True) if not _close(*pair)] == []
