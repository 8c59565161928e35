"""Partial results of windows, by the column `_window`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.common.program import WINDOW_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.queries import Query
from penstock.worker.state.bins import Bins
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.tables import ExpiringTimeKey

Binned: TypeAlias = tuple[int, list[pa.RecordBatch]]
"""Where a bin or a window begins, and its rows."""

WINDOWS: Final = "windows"
"""The table of what is in windows."""

# So many rows wait at least until they are merged: a run costs as much as some thousands of rows.
_LEAST_FRESH_ROWS: Final = 1 << 16
# What is finished in one run: small windows together, but no more groups than a processor's cache holds.
_PORTION_ROWS: Final = 1 << 15


class PartialBins:
    """Partial results in bins of time, merged now and then: memory follows distinct keys, at a constant cost a row."""

    def __init__(self, width_us: int, merge: Query, budget: Budget = UNLIMITED) -> None:
        self.bins = Bins(WINDOW_COLUMN, width_us, budget)
        self._merge = merge

    async def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Files partial results; merges them when most of what is kept has come since the last merge."""
        self.bins.add(batches)
        if self.bins.fresh_rows > max(_LEAST_FRESH_ROWS, 2 * (self.bins.rows - self.bins.fresh_rows)):
            # Those that grew little would cost more than they are worth, and hold less than half of what has come.
            grown = [start for start in self.bins.starts if self.bins[start].fresh_rows > self.bins[start].merged_rows]
            await self._merge_bins(grown)

    async def _merge_bins(self, starts: Iterable[int]) -> None:
        rows: list[pa.RecordBatch] = []
        for start in starts:
            if len(self.bins[start].batches) == 1:
                self.bins.settle(start)  # partial results of one run are of distinct keys
            else:
                rows += self.bins.pop(start).batches
        self.bins.add_merged([await self._merge.run(rows)])


async def note(table: ExpiringTimeKey, batches: Sequence[pa.RecordBatch], merge: Query | None) -> None:
    """Notes rows for the next checkpoint; when they have become many, in as few rows as a merge makes of them."""
    table.add(batches)
    if merge is not None and (rows := table.excess()):
        table.settle([await merge.run(rows)])


class Portions:
    """Rows of windows put together until they are as many as one run takes; a window is never cut."""

    def __init__(self) -> None:
        self._rows: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, window: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Adds a window; gives back what was there before if both would be too much."""
        size = sum(batch.num_rows for batch in window)
        full = self.rest() if self._size + size > _PORTION_ROWS else []
        self._rows.extend(window)
        self._size += size
        return full

    def rest(self) -> list[pa.RecordBatch]:
        """Takes out what there is."""
        rest, self._rows, self._size = self._rows, [], 0
        return rest


async def finished(final: Query, windows: Iterable[Binned]) -> Batches:
    """The results of windows."""
    portions = Portions()
    results = [await final.run(full) for _, rows in windows if (full := portions.add(rows))]
    return with_rows([*results, await final.run(portions.rest())])


def with_rows(batches: Sequence[pa.RecordBatch]) -> Batches:
    """Those that have rows."""
    return tuple(batch for batch in batches if batch.num_rows)
