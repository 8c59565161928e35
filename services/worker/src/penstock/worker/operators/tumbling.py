"""Tumbling windows: partial results wait in their window until the watermark has passed its end."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.common.program import WINDOW_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.partials import WINDOWS, PartialBins, finished, note
from penstock.worker.operators.queries import Query, QueryOperator
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.tables import ExpiringTimeKey

# Windows that are narrower share a bin: there may be one for every row.
_LEAST_BIN_US: Final = 1_000_000


def bin_width(width_us: int) -> int:
    """The width of the bins for windows of a width."""
    return width_us * max(1, _LEAST_BIN_US // width_us)


def first_open(watermark: int, width_us: int) -> int:
    """The first window of a width that has not ended."""
    return END_OF_TIME if watermark == END_OF_TIME else watermark // width_us * width_us


class TumblingWindows(QueryOperator):
    """Windows of one width, one after the other."""

    def __init__(self, width_us: int, merge: Query, final: Query, budget: Budget = UNLIMITED) -> None:
        super().__init__(merge, final)
        self._width_us = width_us
        self._merge = merge
        self._final = final
        self._open = PartialBins(bin_width(width_us), merge, budget)
        self._closed_before = -END_OF_TIME  # windows that begin before this have ended
        self._table = ExpiringTimeKey(WINDOW_COLUMN, budget)
        self.tables = {WINDOWS: self._table}

    @property
    def state_rows(self) -> int:
        return self._open.bins.rows

    @property
    def state_bytes(self) -> int:
        return self._open.bins.nbytes

    async def process(self, batches: Batches) -> Batches:
        # What comes behind the watermark, from a source that was idle, is late: its windows have left.
        timely = [self._on_time(batch, WINDOW_COLUMN, self._closed_before) for batch in batches]
        await self._open.add(timely)
        await note(self._table, timely, self._merge)
        return ()

    async def advance(self, watermark: int) -> Batches:
        closed_before = first_open(watermark, self._width_us)
        if closed_before == self._closed_before:
            return ()
        self._closed_before = closed_before
        self._table.expire(self._closed_before)
        return await finished(self._final, self._open.bins.take_until(self._closed_before))

    async def restore(self, name: str, rows: pa.Table) -> None:
        await self._open.add(rows.to_batches())
