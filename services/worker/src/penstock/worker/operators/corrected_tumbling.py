"""Tumbling windows that late rows correct: a closed one is kept for a while, and its results are changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.program import WINDOW_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.difference import appends, difference
from penstock.worker.operators.partials import WINDOWS, PartialBins, finished, note, with_rows
from penstock.worker.operators.queries import Query, QueryOperator
from penstock.worker.operators.tumbling import bin_width
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.tables import ExpiringTimeKey
from penstock.worker.state.times import microseconds, split_at


class CorrectedTumblingWindows(QueryOperator):
    """Windows of one width; those that ended less than `lateness_us` ago are corrected by rows that still come."""

    def __init__(self, width_us: int, lateness_us: int, merge: Query, final: Query, budget: Budget = UNLIMITED) -> None:
        super().__init__(merge, final)
        self._width_us = width_us
        self._lateness_us = lateness_us
        self._merge = merge
        self._final = final
        self._open = PartialBins(bin_width(width_us), merge, budget)
        self._closed = PartialBins(bin_width(width_us), merge, budget)
        self._closed_before = -END_OF_TIME  # windows that begin before this have ended
        self._table = ExpiringTimeKey(WINDOW_COLUMN, budget)
        self.tables = {WINDOWS: self._table}

    @property
    def state_rows(self) -> int:
        return self._open.bins.rows + self._closed.bins.rows

    @property
    def state_bytes(self) -> int:
        return self._open.bins.nbytes + self._closed.bins.nbytes

    async def process(self, batches: Batches) -> Batches:
        parts = [split_at(batch, WINDOW_COLUMN, self._closed_before) for batch in batches]
        await self._open.add(on_time for _, on_time in parts)
        kept_from = self._closed_before - self._lateness_us
        late = with_rows([self._on_time(rows, WINDOW_COLUMN, kept_from) for rows, _ in parts])
        await note(self._table, [*(on_time for _, on_time in parts), *late], self._merge)
        if not late:
            return ()
        before = self._closed_rows(late)
        changes = difference(await self._final.run(before), await self._final.run([*before, *late]), timed=True)
        await self._closed.add(late)
        return with_rows([changes])

    async def advance(self, watermark: int) -> Batches:
        self._closed_before = watermark - self._width_us + 1
        closing = self._open.bins.take_until(self._closed_before)
        results = await finished(self._final, closing)
        if watermark < END_OF_TIME:
            await self._closed.add(batch for _, batches in closing for batch in batches)
        self._closed.bins.take_until(self._closed_before - self._lateness_us)
        self._table.expire(self._closed_before - self._lateness_us)
        return tuple(map(appends, results))

    async def restore(self, name: str, rows: pa.Table) -> None:
        parts = [split_at(batch, WINDOW_COLUMN, self._closed_before) for batch in rows.to_batches()]
        await self._closed.add(closed for closed, _ in parts)
        await self._open.add(still_open for _, still_open in parts)

    def _closed_rows(self, late: Batches) -> list[pa.RecordBatch]:
        """What is kept of the ended windows that late rows are of."""
        windows = pc.unique(pa.chunked_array([batch.column(WINDOW_COLUMN) for batch in late]))
        width = bin_width(self._width_us)
        starts = np.unique(microseconds(windows) // width * width).tolist()
        kept = [batch for start in starts if start in self._closed.bins for batch in self._closed.bins[start].batches]
        if width == self._width_us:
            return kept
        return [batch.filter(pc.is_in(batch.column(WINDOW_COLUMN), value_set=windows)) for batch in kept]
