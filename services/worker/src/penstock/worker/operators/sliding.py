"""Sliding windows: when the watermark passes the end of one, it is put together of its panes."""

from __future__ import annotations

from bisect import bisect_left

import pyarrow as pa

from penstock.common.program import WINDOW_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.difference import appends, difference
from penstock.worker.operators.panes import Panes, Slide, of_window
from penstock.worker.operators.partials import WINDOWS, Portions, note, with_rows
from penstock.worker.operators.queries import Query, QueryOperator
from penstock.worker.state.bins import Bins
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.tables import ExpiringTimeKey
from penstock.worker.state.times import split_at


class SlidingWindows(QueryOperator):
    """Windows of one width that begin at each slide.

    With `lateness_us`, those that ended less than that ago are corrected by rows that still come, and all results are
    changes.
    """

    def __init__(self, slide: Slide, lateness_us: int, merge: Query, final: Query, budget: Budget = UNLIMITED) -> None:
        super().__init__(merge, final)
        self._slide = slide
        self._lateness_us = lateness_us
        self._merge = merge
        self._final = final
        self._panes = Panes(slide, merge, budget)
        self._first_open = -END_OF_TIME  # windows that begin before this have ended
        self._first_kept = -END_OF_TIME  # those that begin before this can no longer be corrected
        self._table = ExpiringTimeKey(WINDOW_COLUMN, budget)
        self.tables = {WINDOWS: self._table}

    @property
    def state_rows(self) -> int:
        return self._panes.rows

    @property
    def state_bytes(self) -> int:
        return self._panes.nbytes

    async def process(self, batches: Batches) -> Batches:
        batches = tuple(self._on_time(batch, WINDOW_COLUMN, self._first_kept) for batch in batches)
        changes = await self._corrections(batches) if self._lateness_us else ()
        await self._panes.add(batches)
        await note(self._table, batches, self._merge)
        return changes

    async def advance(self, watermark: int) -> Batches:
        first_open = self._slide.first_open(watermark)
        results = await self._ending(first_open)
        self._first_open = self._first_kept = first_open
        if self._lateness_us and watermark < END_OF_TIME:
            self._first_kept = self._slide.first_open(watermark - self._lateness_us)
        self._panes.drop_before(self._first_kept)
        self._table.expire(self._first_kept)
        return tuple(map(appends, results)) if self._lateness_us else results

    async def restore(self, name: str, rows: pa.Table) -> None:
        await self._panes.add(rows.to_batches())

    async def _ending(self, first_open: int) -> Batches:
        """The results of the windows that end before the first open one."""
        panes, portions, results = self._panes.starts, Portions(), []
        if not panes:
            return ()
        since = self._slide.first_after(panes[0] - self._slide.width_us)
        for window in self._slide.windows_of(panes, max(since, self._first_open), first_open):
            if full := portions.add(await self._panes.window(window)):
                results.append(await self._final.run(full))
        return with_rows([*results, await self._final.run(portions.rest())])

    async def _corrections(self, batches: Batches) -> Batches:
        """What rows change about windows that have ended."""
        late = Bins(WINDOW_COLUMN, self._slide.pane_us)
        until = self._first_open - self._slide.slide_us + self._slide.width_us  # where the last one ended
        late.add(split_at(batch, WINDOW_COLUMN, until)[0] for batch in batches)
        changes = []
        for window in self._slide.windows_of(late.starts, self._first_kept, self._first_open):
            kept = await self._panes.window(window)
            end = bisect_left(late.starts, window + self._slide.width_us)
            panes = late.starts[bisect_left(late.starts, window) : end]
            new = of_window((batch for pane in panes for batch in late[pane].batches), window)
            old, current = await self._final.run(kept), await self._final.run([*kept, *new])
            changes.append(difference(old, current, timed=True))
        return with_rows(changes)
