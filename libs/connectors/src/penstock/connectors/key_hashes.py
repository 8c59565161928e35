"""Hashes of keys, for indexes that live in memory: they are the same within a process, and only there."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

Int64s: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


def key_hashes(keys: pa.RecordBatch | pa.Table) -> Int64s:
    """A hash of each row of key columns, which have no nulls; different numbers have different ones."""
    first, *others = map(_column_hashes, keys.columns)
    for other in others:
        first = ((first ^ (first >> _SHIFT)) * _SPREAD) ^ other
    return first.view(np.int64)


def same_keys(one: pa.RecordBatch | pa.Table, other: pa.RecordBatch | pa.Table) -> Mask:
    """Where the rows of two batches of keys, which have no nulls, are equal."""
    equal = np.ones(one.num_rows, np.bool_)
    for left, right in zip(one.columns, other.columns, strict=True):
        equal &= np.asarray(pc.equal(left, right))
    return equal


def _column_hashes(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    if arrow.is_integer(column.type):
        return np.asarray(column.cast(pa.int64())).astype(np.int64).view(np.uint64)
    series = pl.from_arrow(column)
    assert isinstance(series, pl.Series)
    return series.hash(0).to_numpy()
