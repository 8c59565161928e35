"""Rows by the hash of their keys, as they come: adding and reading cost as much as the rows that are touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.worker.state.batches import joined
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import HashIndex, Int64s
from penstock.worker.state.slabs import (
    RUN_BITS,
    Slab,
    by_slab,
    crowd_of,
    is_mostly_dead,
    rewritten,
    row_hashes,
    spill_slabs,
)
from penstock.worker.state.times import microseconds

_NONE: Final = -1
_LEAST_RUNS: Final = 1 << 10
_SWEEPS: Final = 8  # rows outlive their time by at most this part of it


class Runs:
    """Runs of rows of one hash, by number: where each is, how long it is, and which one of the same hash is older.

    A run without rows is nowhere; it stays for the sake of those behind it."""

    def __init__(self) -> None:
        self.locations = np.full(_LEAST_RUNS, _NONE, np.int64)
        self.lengths = np.zeros(_LEAST_RUNS, np.int32)
        self.older = np.full(_LEAST_RUNS, _NONE, np.int32)
        self._free = np.arange(_LEAST_RUNS, dtype=np.int32)[::-1].copy()  # a stack, as large as all numbers
        self._free_count = _LEAST_RUNS

    @property
    def nbytes(self) -> int:
        """The memory of all."""
        arrays = (self.locations, self.lengths, self.older, self._free)
        return sum(int(array.nbytes) for array in arrays)

    def take(self, count: int) -> Int64s:
        """Numbers for new runs."""
        while self._free_count < count:
            self._grow()
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].astype(np.int64)

    def free(self, numbers: Int64s) -> None:
        """Gives numbers back."""
        self.locations[numbers] = _NONE
        self.lengths[numbers] = 0
        self._free[self._free_count : self._free_count + numbers.size] = numbers
        self._free_count += numbers.size

    def _grow(self) -> None:
        size = self.locations.size
        self.locations, self.older = (
            np.concatenate([array, np.full(size, _NONE, array.dtype)]) for array in (self.locations, self.older)
        )
        self.lengths = np.concatenate([self.lengths, np.zeros(size, np.int32)])
        self._free = np.concatenate([np.arange(size, 2 * size, dtype=np.int32)[::-1], self._free])
        self._free_count += size


class KeyedLog:
    """Rows by their hash, in slabs; those of one hash are runs of which each is longer than the younger ones.

    A new run is joined with older ones that are no longer than itself, so that a hash has few runs, a logarithm of its
    rows, and a row is copied as often. Rows whose `time_column` is before `expire`'s moment are forgotten, by and by.
    """

    def __init__(self, schema: pa.Schema, time_column: str, budget: Budget = UNLIMITED) -> None:
        self._schema = schema
        self._time_column = time_column
        self._budget = budget
        self._index = HashIndex()
        self._runs = Runs()
        self._slabs: dict[int, Slab] = {}
        self._numbers: dict[int, Int64s] = {}  # of the runs of each slab
        self._next_slab = 0
        self._expired_before = int(np.iinfo(np.int64).min)
        self._swept_at: int | None = None

    @property
    def rows(self) -> int:
        """How many rows are kept."""
        return sum(slab.kept for slab in self._slabs.values())

    @property
    def nbytes(self) -> int:
        """How large rows and index are, wherever they are."""
        return self._index.nbytes + self._runs.nbytes + sum(slab.nbytes for slab in self._slabs.values())

    @property
    def memory_bytes(self) -> int:
        """What of that is in memory."""
        spilled: int = sum(slab.rows.nbytes for slab in self._slabs.values() if slab.is_spilled)
        return self.nbytes - spilled

    def spill(self, bytes: int) -> int:
        """Moves slabs to files."""
        return spill_slabs(self._slabs.values(), bytes, self._budget)

    def fetch(self, hashes: Int64s) -> pa.RecordBatch:
        """All rows of distinct hashes that are not too old, whether they have been forgotten yet or not."""
        numbers = self._index.find(hashes)
        found: list[Int64s] = []
        while (numbers := numbers[numbers != _NONE]).size:
            found.append(self._runs.locations[numbers])
            numbers = self._runs.older[numbers]
        locations = np.concatenate(found) if found else np.empty(0, np.int64)
        return self._unexpired(joined(list(self._rows_at(locations[locations != _NONE])), self._schema))

    def add(self, rows: pa.RecordBatch) -> None:
        """Keeps more rows."""
        if not rows.num_rows:
            return
        hashes, lengths = np.unique(row_hashes(rows), return_counts=True)
        older = self._index.find(hashes)
        is_new = older == _NONE
        parts = list(self._absorbed(older, lengths))
        slab = self._slab_of(joined([*parts, rows], self._schema) if parts else rows)
        numbers = self._runs.take(hashes.size)
        self._runs.locations[numbers] = self._file(slab, numbers)
        self._runs.lengths[numbers] = slab.lengths(np.arange(hashes.size))
        self._runs.older[numbers] = older
        self._index.insert(hashes[is_new], numbers[is_new])
        self._index.move(hashes[~is_new], numbers[~is_new])
        self._compact()
        self._budget.hold(self, lambda: self.memory_bytes)

    def expire(self, before: int, keeping_us: int) -> None:
        """Rows of earlier times are of no use; now and then, by how long they are kept, they are looked for."""
        self._expired_before = before
        if self._swept_at is None or before - self._swept_at >= max(1, keeping_us // _SWEEPS):
            self._swept_at = before
            self._sweep()

    def _absorbed(self, older: Int64s, lengths: Int64s) -> Iterator[pa.RecordBatch]:
        """The rows of older runs that new ones are joined with; afterwards `older` has those that stay."""
        while True:
            joins = (older != _NONE) & (np.where(older == _NONE, 0, self._runs.lengths[older]) <= lengths)
            if not joins.any():
                return
            numbers = older[joins]
            lengths[joins] += self._runs.lengths[numbers]
            older[joins] = self._runs.older[numbers]
            locations = self._runs.locations[numbers]
            locations = locations[locations != _NONE]
            yield from map(self._unexpired, self._rows_at(locations))
            self._drop(locations)
            self._runs.free(numbers)

    def _unexpired(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        early = microseconds(rows.column(self._time_column)) < self._expired_before
        return rows.filter(pa.array(~early)) if early.any() else rows

    def _rows_at(self, locations: Int64s) -> Iterator[pa.RecordBatch]:
        return (self._slabs[slab].take(runs) for slab, runs in by_slab(locations))

    def _slab_of(self, rows: pa.RecordBatch) -> Slab:
        """Rows as runs in the order of their hashes."""
        order = np.argsort(row_hashes(rows), kind="stable")
        rows = rows.take(pa.array(order))
        hashes = row_hashes(rows)
        times = microseconds(rows.column(self._time_column))
        begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
        if begins.size == hashes.size:
            return Slab(rows, hashes, None, times)
        return Slab(rows, hashes[begins], np.append(begins, hashes.size), np.maximum.reduceat(times, begins))

    def _file(self, slab: Slab, numbers: Int64s) -> Int64s:
        """Files a slab; returns the locations of its runs."""
        first = self._next_slab << RUN_BITS
        self._slabs[self._next_slab], self._numbers[self._next_slab] = slab, numbers
        self._next_slab += 1
        return np.arange(first, first + slab.hashes.size)

    def _drop(self, locations: Int64s) -> None:
        """Runs are no longer where they were."""
        for number, runs in by_slab(locations):
            slab = self._slabs[number]
            slab.alive[runs] = False
            slab.kept -= int(slab.lengths(runs).sum())

    def _sweep(self) -> None:
        """Drops runs of which all rows are too old, and hashes that have no others."""
        old: list[Int64s] = []
        for number, slab in self._slabs.items():
            assert slab.times is not None
            if slab.oldest < self._expired_before:
                runs = np.flatnonzero(slab.alive & (slab.times < self._expired_before))
                slab.oldest = self._expired_before
                slab.alive[runs] = False
                slab.kept -= int(slab.lengths(runs).sum())
                self._empty(self._numbers[number][runs])
                old.append(slab.hashes[runs])
        if old:
            self._unlink(np.unique(np.concatenate(old)))
        self._compact()

    def _empty(self, numbers: Int64s) -> None:
        self._runs.locations[numbers] = _NONE
        self._runs.lengths[numbers] = 0

    def _unlink(self, hashes: Int64s) -> None:
        """Takes empty runs off the young end of these hashes."""
        heads = self._index.find(hashes)
        while (gone := (heads != _NONE) & (np.where(heads == _NONE, 1, self._runs.lengths[heads]) == 0)).any():
            numbers = heads[gone]
            heads[gone] = self._runs.older[numbers]
            self._runs.free(numbers)
        self._index.move(hashes[heads != _NONE], heads[heads != _NONE])
        self._index.remove(hashes[heads == _NONE])

    def _compact(self) -> None:
        for number in [number for number, slab in self._slabs.items() if not slab.kept]:
            self._pop(number)
        for number in [number for number, slab in self._slabs.items() if is_mostly_dead(slab)]:
            self._rewrite([number])
        while (crowd := crowd_of(self._slabs)) is not None:
            self._rewrite(crowd)

    def _pop(self, number: int) -> tuple[Slab, Int64s]:
        return self._slabs.pop(number), self._numbers.pop(number)

    def _rewrite(self, numbers: Iterable[int]) -> None:
        """Puts what is still kept of some slabs into one."""
        popped = [(*self._pop(number),) for number in numbers]
        alive: list[npt.NDArray[np.int64]] = [np.flatnonzero(slab.alive) for slab, _ in popped]
        slab = rewritten([(slab, runs) for (slab, _), runs in zip(popped, alive, strict=True)], self._schema)
        moved = np.concatenate([of[runs] for (_, of), runs in zip(popped, alive, strict=True)])
        self._runs.locations[moved] = self._file(slab, moved)
