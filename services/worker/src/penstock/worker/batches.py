"""Batches cut and put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa

Batches: TypeAlias = tuple[pa.RecordBatch, ...]

# Batches are joined up to this size: joining copies, and the offsets of text have 32 bits.
_JOINED_BYTES: Final = 64 << 20


def has_rows(batches: Batches) -> bool:
    """Whether there is any row in them."""
    return any(batch.num_rows for batch in batches)


def slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of at most so many rows."""
    if batch.num_rows <= rows:
        if batch.num_rows:
            yield batch
        return
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def joined(batches: Batches) -> Batches:
    """Batches as one, unless that would be large."""
    if len(batches) < 2 or sum(batch.nbytes for batch in batches) > _JOINED_BYTES:
        return batches
    return (pa.concat_batches(batches),)
