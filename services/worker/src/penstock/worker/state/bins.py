"""Rows by bins of time, as they came: cheap to add to, and to take from at the old end."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.times import microseconds, split_at


@dataclass(slots=True)
class Bin:
    """The rows of one bin."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0
    merged_rows: int = 0
    """How many of them came out of a merge."""

    @property
    def fresh_rows(self) -> int:
        """How many have come since the last merge."""
        return self.rows - self.merged_rows


class Bins:
    """Rows by `column` (timestamps of microseconds, not null), in bins of `width_us` that begin at its multiples."""

    def __init__(self, column: str, width_us: int, budget: Budget = UNLIMITED) -> None:
        self._budget = budget
        self._spilled: dict[int, int] = {}  # bytes in files, by bin
        self._column = column
        self._width_us = width_us
        self._bins: dict[int, Bin] = {}
        self._starts: list[int] = []  # in order
        self._rows = 0
        self._nbytes = 0
        self._fresh_rows = 0

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """How large they are."""
        return self._nbytes

    @property
    def fresh_rows(self) -> int:
        """How many have come since the last merges."""
        return self._fresh_rows

    @property
    def starts(self) -> Sequence[int]:
        """Where each bin begins that has rows, in order."""
        return self._starts

    def __contains__(self, start: int) -> bool:
        return start in self._bins

    def __getitem__(self, start: int) -> Bin:
        return self._bins[start]

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Files rows by their time."""
        for batch in batches:
            if batch.num_rows:
                for start, part in self._parts(batch):
                    self._append(start, part)
        self._budget.hold(self, lambda: self._nbytes - sum(self._spilled.values()))

    def spill(self, bytes: int) -> int:
        """Moves bins to files, the latest first: those that end next are needed next."""
        moved = 0
        for start in reversed(self._starts):
            if moved >= bytes:
                break
            if start not in self._spilled:
                moved += self._spill(start)
        return moved

    def _spill(self, start: int) -> int:
        found, moved = self._bins[start], 0
        for place, batch in enumerate(found.batches):
            if (rows := self._budget.moved(batch)) is not None:
                found.batches[place] = rows
                moved += batch.nbytes
        if moved:
            self._spilled[start] = moved
        return moved

    def add_merged(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Files rows that all rows of their bins, taken out before, were merged into."""
        before = set(self._starts)
        self.add(batches)
        for start in self._starts:
            if start not in before:
                self.settle(start)

    def settle(self, start: int) -> None:
        """Notes that a merge would make the rows of a bin no fewer."""
        found = self._bins[start]
        self._fresh_rows -= found.fresh_rows
        found.merged_rows = found.rows

    def pop(self, start: int) -> Bin:
        """Takes a bin out."""
        del self._starts[bisect_left(self._starts, start)]
        return self._remove(start)

    def take_until(self, moment: int) -> list[tuple[int, list[pa.RecordBatch]]]:
        """Takes out the rows whose time is before a moment, bin by bin in order."""
        whole = bisect_left(self._starts, moment - self._width_us + 1)
        taken = [(start, self._remove(start).batches) for start in self._starts[:whole]]
        del self._starts[:whole]
        if self._starts and self._starts[0] < moment:
            start = self._starts[0]
            before = self._cut(start, moment)
            if before:
                taken.append((start, before))
        return taken

    def _cut(self, start: int, moment: int) -> list[pa.RecordBatch]:
        """Takes the rows before a moment out of the bin that it falls into."""
        old, before = self.pop(start), []
        for batch in old.batches:
            early, later = split_at(batch, self._column, moment)
            if early.num_rows:
                before.append(early)
            if later.num_rows:
                self._append(start, later)
        return before

    def _append(self, start: int, batch: pa.RecordBatch) -> None:
        found = self._bins.get(start)
        if found is None:
            found = self._bins[start] = Bin()
            insort(self._starts, start)
        size = batch.nbytes
        found.batches.append(batch)
        found.rows += batch.num_rows
        found.nbytes += size
        self._rows += batch.num_rows
        self._fresh_rows += batch.num_rows
        self._nbytes += size

    def _remove(self, start: int) -> Bin:
        found = self._bins.pop(start)
        self._spilled.pop(start, None)
        self._rows -= found.rows
        self._fresh_rows -= found.fresh_rows
        self._nbytes -= found.nbytes
        return found

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a batch bin by bin, those of a bin in their order."""
        times = microseconds(batch.column(self._column))
        first, last = int(times.min()) // self._width_us, int(times.max()) // self._width_us
        if first == last:
            yield first * self._width_us, batch
            return
        numbers = times // self._width_us
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        bounds = np.append(np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])), numbers.size)
        for begin, end in _neighbours(numbers[bounds[:-1]] - first):
            offset = int(bounds[begin])
            rows = batch.take(pa.array(order[offset : bounds[end]]))
            for part in range(begin, end):
                start, stop = int(bounds[part]), int(bounds[part + 1])
                yield int(numbers[start]) * self._width_us, rows.slice(start - offset, stop - start)


def _neighbours(distances: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of bins whose rows share memory: those that are about as far from the first one. They leave at about the
    same time, while a bin far ahead would hold on to the memory of all others."""
    doublings = np.frexp(distances.astype(np.float64))[1]
    edges = [0, *(np.flatnonzero(doublings[1:] != doublings[:-1]) + 1).tolist(), distances.size]
    return pairwise(edges)
