"""Hashes of keys, for indexes that live in memory: they are the same within a process, and only there."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

Int64s: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def key_hashes(keys: pa.RecordBatch | pa.Table) -> Int64s:
    """A hash of each row of key columns."""
    frame = pl.from_arrow(keys)
    assert isinstance(frame, pl.DataFrame)
    return frame.hash_rows(seed=0).to_numpy().view(np.int64)


def same_keys(one: pa.RecordBatch | pa.Table, other: pa.RecordBatch | pa.Table) -> Mask:
    """Where the rows of two batches of keys, which have no nulls, are equal."""
    equal = np.ones(one.num_rows, np.bool_)
    for left, right in zip(one.columns, other.columns, strict=True):
        equal &= np.asarray(pc.equal(left, right))
    return equal
