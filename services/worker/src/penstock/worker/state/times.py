"""Event times as numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def microseconds(column: pa.Array) -> npt.NDArray[np.int64]:
    """Timestamps of microseconds as the numbers that they are, without a copy; there are no nulls among them."""
    numbers: npt.NDArray[np.int64] = column.view(pa.int64()).to_numpy()
    return numbers


def split_at(batch: pa.RecordBatch, column: str, moment: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows whose time is before a moment, and the others; a batch of only one kind is not copied."""
    early = microseconds(batch.column(column)) < moment
    if not early.any():
        return batch.slice(0, 0), batch
    if early.all():
        return batch, batch.slice(0, 0)
    return batch.filter(pa.array(early)), batch.filter(pa.array(~early))
