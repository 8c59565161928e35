"""Panes, of which windows that overlap are made: each row is kept once, and windows share what they have in common."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.common.program import FIRST_WINDOW_COLUMN, WINDOW_COLUMN
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.partials import PartialBins
from penstock.worker.operators.queries import Query
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import Int64s
from penstock.worker.state.times import microseconds

# Fewer rows are not worth a run that makes them fewer still.
_LEAST_MERGED_ROWS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Slide:
    """Windows of one width that begin at the multiples of a slide."""

    slide_us: int
    width_us: int

    @property
    def pane_us(self) -> int:
        """The width of the panes: each window is some whole ones."""
        return gcd(self.slide_us, self.width_us)

    def first_open(self, watermark: int) -> int:
        """The first window that has not ended."""
        return self.first_after(watermark - self.width_us)

    def first_after(self, moment: int) -> int:
        """The first window that begins after a moment."""
        return (moment // self.slide_us + 1) * self.slide_us

    def windows_of(self, panes: Sequence[int], since: int, until: int) -> Iterator[int]:
        """The windows from `since` to before `until` that have any of some panes, in order. Quiet times are jumped."""
        window = since
        while (place := bisect_left(panes, window)) < len(panes):
            if panes[place] >= window + self.width_us:
                window = self.first_after(panes[place] - self.width_us)
            if window >= until:
                return
            if panes[place] >= window:
                yield window
                window += self.slide_us


class Panes:
    """The partial results of panes. Neighbours are merged into twice as wide ones when a window needs them, and these
    again, so that a window is put together of few: twice the logarithm of its panes."""

    def __init__(self, slide: Slide, merge: Query, budget: Budget = UNLIMITED) -> None:
        self._slide = slide
        self._merge = merge
        self._partials = PartialBins(slide.pane_us, merge, budget)
        self._widest = (slide.width_us // slide.pane_us).bit_length() - 2  # the level of half a window
        self._merged: dict[tuple[int, int], pa.RecordBatch | None] = {}  # by level and number; None: not worth it
        self._merged_until = -END_OF_TIME  # nothing behind this has been merged

    @property
    def starts(self) -> Sequence[int]:
        """Where each pane begins that has rows, in order."""
        return self._partials.bins.starts

    @property
    def rows(self) -> int:
        """How many rows there are, each counted once."""
        return self._partials.bins.rows

    @property
    def nbytes(self) -> int:
        """The memory of all."""
        merged: int = sum(one.nbytes for one in self._merged.values() if one is not None)
        return self._partials.bins.nbytes + merged

    async def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Files partial results."""
        for batch in batches:
            self._forget_merged(microseconds(batch.column(WINDOW_COLUMN)))
        await self._partials.add(batches)

    def _forget_merged(self, panes: Int64s) -> None:
        """Forgets what was merged of panes that get more rows."""
        for number in np.unique(panes[panes < self._merged_until] // self._slide.pane_us).tolist():
            for level in range(1, self._widest + 1):
                self._merged.pop((level, number >> level), None)

    def drop_before(self, window: int) -> None:
        """Forgets panes that no window from this one on has."""
        self._partials.bins.take_until(window)
        pane = window // self._slide.pane_us
        for level, number in [key for key in self._merged if (key[1] + 1) << key[0] <= pane]:
            del self._merged[level, number]

    async def window(self, start: int) -> list[pa.RecordBatch]:
        """The rows of a window that has ended, as rows of that window."""
        pane_us = self._slide.pane_us
        first, end = start // pane_us, (start + self._slide.width_us) // pane_us
        self._merged_until = max(self._merged_until, start + self._slide.width_us)
        rows: list[pa.RecordBatch] = []
        while first < end:
            level = self._level_at(first, end)
            rows += await self._node(level, first >> level)
            first += 1 << level
        return of_window(rows, start)

    def _level_at(self, first: int, end: int) -> int:
        """The level of the widest pane that begins here and is in the window."""
        level = min(self._widest, (end - first).bit_length() - 1)
        while level > 0 and first & ((1 << level) - 1):
            level -= 1
        return max(0, level)

    async def _node(self, level: int, number: int) -> list[pa.RecordBatch]:
        panes = self._between((number << level) * self._slide.pane_us, ((number + 1) << level) * self._slide.pane_us)
        if len(panes) < 2:
            return [batch for pane in panes for batch in self._partials.bins[pane].batches]
        if (found := self._merged.get((level, number))) is not None:
            return [found]
        halves = [await self._node(level - 1, 2 * number), await self._node(level - 1, 2 * number + 1)]
        rows = [batch for half in halves for batch in half]
        if (level, number) not in self._merged and all(halves):
            found = self._merged[level, number] = await self._merged_rows(rows, (number << level) * self._slide.pane_us)
        return rows if found is None else [found]

    def _between(self, start: int, end: int) -> Sequence[int]:
        """The panes with rows that begin in some time."""
        return self.starts[bisect_left(self.starts, start) : bisect_left(self.starts, end)]

    async def _merged_rows(self, rows: Sequence[pa.RecordBatch], start: int) -> pa.RecordBatch | None:
        """Rows merged into one pane, unless that makes them hardly fewer."""
        count = sum(batch.num_rows for batch in rows)
        if count < _LEAST_MERGED_ROWS:
            return None
        merged = await self._merge.run([_relabelled(batch, start, WINDOW_COLUMN) for batch in rows])
        return merged if merged.num_rows <= count * 3 // 4 else None


def of_window(batches: Iterable[pa.RecordBatch], window: int) -> list[pa.RecordBatch]:
    """The rows as rows of a window, without those that came too late for it."""
    return [_relabelled(_counted(batch, window), window, WINDOW_COLUMN, FIRST_WINDOW_COLUMN) for batch in batches]


def _counted(batch: pa.RecordBatch, window: int) -> pa.RecordBatch:
    place = batch.schema.get_field_index(FIRST_WINDOW_COLUMN)
    if place < 0 or not batch.num_rows:
        return batch
    counts = microseconds(batch.column(place)) <= window
    return batch if counts.all() else batch.filter(pa.array(counts))


def _relabelled(batch: pa.RecordBatch, window: int, *names: str) -> pa.RecordBatch:
    """The rows with that moment in those of the columns that they have."""
    moments = pa.array(np.full(batch.num_rows, window))
    for place in map(batch.schema.get_field_index, names):
        if place >= 0:
            field = batch.schema.field(place)
            batch = batch.set_column(place, field, moments.view(field.type))
    return batch
