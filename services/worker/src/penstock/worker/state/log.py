"""Rows by the hash of their keys, as they come: adding and reading cost as much as the rows that are touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.worker.state.batches import joined
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import ABSENT, HashIndex, Int64s, are_among, distinct
from penstock.worker.state.slabs import (
    RUN_BITS,
    InRuns,
    Slab,
    by_slab,
    crowd_of,
    drop,
    in_runs,
    is_mostly_dead,
    rewritten,
    row_hashes,
    rows_of,
    spill_slabs,
)
from penstock.worker.state.times import microseconds

_NONE: Final = ABSENT
_LEAST_RUNS: Final = 1 << 10
_RUN: Final = np.dtype([("location", np.int64), ("length", np.int32), ("older", np.int32)])
_SWEEPS: Final = 8  # rows outlive their time by at most this part of it
_SPARSE: Final = 16  # where fewer than one in so many hashes is asked for, rows are looked through
_MOST_LOOKS: Final = 8  # as often: by then they might as well have been indexed
_MOST_WAITING: Final = 64  # batches
_LARGE_ROWS: Final = 1 << 17


class Runs:
    """Runs of rows of one hash, by number: where each is, how long it is, and which one of the same hash is older.

    A run without rows is nowhere; it stays for the sake of those behind it. What is known of one is side by side in
    `table`, so that reading it touches one line of the cache.
    """

    def __init__(self) -> None:
        self.table = np.zeros(_LEAST_RUNS, _RUN)
        self._free = np.arange(_LEAST_RUNS, dtype=np.int32)[::-1].copy()  # a stack, as large as all numbers
        self._free_count = _LEAST_RUNS

    @property
    def nbytes(self) -> int:
        """The memory of all."""
        return int(self.table.nbytes + self._free.nbytes)

    def take(self, count: int) -> Int64s:
        """Numbers for new runs."""
        while self._free_count < count:
            self._grow()
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].astype(np.int64)

    def free(self, numbers: Int64s) -> None:
        """Gives numbers back."""
        self._free[self._free_count : self._free_count + numbers.size] = numbers
        self._free_count += numbers.size

    def _grow(self) -> None:
        size = self.table.size
        self.table = np.concatenate([self.table, np.zeros(size, _RUN)])
        self._free = np.concatenate([np.arange(size, 2 * size, dtype=np.int32)[::-1], self._free])
        self._free_count += size


@dataclass(slots=True, eq=False)
class _Waiting:
    """Rows that are not in the index yet, and how often they were looked through."""

    slab: Slab
    newest: int
    looks: int = 0


class KeyedLog:
    """Rows by their hash, in slabs; those of one hash are runs.

    Rows wait as they came until they are asked for: where one side of a join has few rows, the other side's are looked
    through for these, and most are forgotten before it pays to index them.

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
        self._waiting: list[_Waiting] = []
        self._next_slab = 0
        self._expired_before = int(np.iinfo(np.int64).min)
        self._swept_at: int | None = None

    @property
    def rows(self) -> int:
        """How many rows are kept."""
        return sum(slab.kept for slab in self._all_slabs)

    @property
    def nbytes(self) -> int:
        """How large rows and index are, wherever they are."""
        return self._index.nbytes + self._runs.nbytes + sum(slab.nbytes for slab in self._all_slabs)

    @property
    def memory_bytes(self) -> int:
        """What of that is in memory."""
        slabs = sum(slab.memory_bytes for slab in self._all_slabs)
        return self._index.nbytes + self._runs.nbytes + slabs

    @property
    def _all_slabs(self) -> Iterator[Slab]:
        """The oldest first."""
        return chain(self._slabs.values(), (waiting.slab for waiting in self._waiting))

    def spill(self, bytes: int) -> int:
        """Moves slabs to files."""
        return spill_slabs(self._all_slabs, bytes, self._budget)

    def fetch(self, hashes: Int64s) -> pa.RecordBatch:
        """All rows of distinct hashes that are not too old, whether they have been forgotten yet or not."""
        self._index_asked_for(hashes.size)
        numbers = self._index.find(hashes)
        found: list[Int64s] = [np.empty(0, np.int64)]
        while (numbers := numbers[numbers != _NONE]).size:
            runs = self._runs.table.take(numbers)
            found.append(runs["location"])
            numbers = runs["older"]
        return self.unexpired(rows_of([*self._runs_at(np.concatenate(found)), *self._looked_for(hashes)], self._schema))

    def add(self, rows: pa.RecordBatch) -> None:
        """Keeps more rows."""
        if not rows.num_rows:
            return
        times = microseconds(rows.column(self._time_column))
        self._waiting.append(_Waiting(Slab(rows, row_hashes(rows), None, times), int(times.max())))
        if len(self._waiting) > _MOST_WAITING or rows.num_rows >= _LARGE_ROWS:
            self._index_waiting(self._waiting)
        self._budget.hold(self, lambda: self.memory_bytes)

    def _looked_for(self, hashes: Int64s) -> Iterator[tuple[Slab, Int64s]]:
        """Those of the waiting rows that have one of some hashes."""
        for waiting in self._waiting:
            waiting.looks += 1
            found = np.flatnonzero(are_among(waiting.slab.hashes, hashes))
            if found.size:
                yield waiting.slab, found

    def _index_asked_for(self, count: int) -> None:
        """Indexes the waiting rows for which that costs less than to look through them for so many hashes again."""
        if count * _SPARSE >= sum(waiting.slab.size for waiting in self._waiting):
            self._index_waiting(self._waiting)
        else:
            self._index_waiting([waiting for waiting in self._waiting if waiting.looks >= _MOST_LOOKS])

    def _index_waiting(self, chosen: Sequence[_Waiting]) -> None:
        if chosen:
            rows = joined([waiting.slab.rows for waiting in chosen], self._schema)
            self._waiting = [waiting for waiting in self._waiting if waiting not in chosen]
            self._insert(self.unexpired(rows))

    def _insert(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        runs = in_runs(rows)
        hashes, lengths = runs.hashes, runs.lengths
        youngest = self._index.find(hashes)
        older = youngest.copy()
        if parts := list(self._absorbed(older, lengths)):
            rows = joined([*parts, rows], self._schema)
            runs = in_runs(rows)
            if not np.array_equal(hashes, runs.hashes):  # they were as they came, and are in order now
                order = np.argsort(hashes)
                hashes, youngest, older = runs.hashes, youngest[order], older[order]
        slab = self._slab_of(rows, runs)
        numbers = self._numbered(hashes, youngest, older)
        self._runs.table["location"][numbers] = self._file(slab, numbers)
        self._runs.table["length"][numbers] = slab.lengths(np.arange(hashes.size))
        self._runs.table["older"][numbers] = older
        self._compact()

    def expire(self, before: int, keeping_us: int) -> None:
        """Rows of earlier times are of no use; now and then, by how long they are kept, they are looked for."""
        self._expired_before = before
        if self._swept_at is None or before - self._swept_at >= max(1, keeping_us // _SWEEPS):
            self._swept_at = before
            self._sweep()

    def _absorbed(self, older: Int64s, lengths: Int64s) -> Iterator[pa.RecordBatch]:
        """The rows of older runs that new ones are joined with; afterwards `older` has those that stay.

        The number of the youngest run of a hash is not given back."""
        youngest = older.copy()
        joining = np.flatnonzero(older != _NONE)
        while joining.size:
            runs = self._runs.table.take(older[joining])
            is_short = runs["length"] <= lengths[joining]
            joining, runs = joining[is_short], runs[is_short]
            found = self._runs_at(runs["location"])
            if found:
                yield self.unexpired(rows_of(found, self._schema))
                drop(found)
            numbers = older[joining]
            self._runs.free(numbers[numbers != youngest[joining]])
            lengths[joining] += runs["length"]
            older[joining] = runs["older"]
            joining = joining[runs["older"] != _NONE]

    def _numbered(self, hashes: Int64s, youngest: Int64s, older: Int64s) -> Int64s:
        """Numbers of the new runs: that of the youngest one where that was joined with the new one."""
        numbers = youngest.copy()
        stays, is_new = youngest == older, youngest == _NONE
        numbers[stays] = self._runs.take(int(np.count_nonzero(stays)))
        self._index.insert(hashes[is_new], numbers[is_new])
        self._index.move(hashes[stays & ~is_new], numbers[stays & ~is_new])
        return numbers

    def unexpired(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of some rows that are not too old."""
        early = microseconds(rows.column(self._time_column)) < self._expired_before
        return rows.filter(pa.array(~early)) if early.any() else rows

    def _runs_at(self, locations: Int64s) -> Sequence[tuple[Slab, Int64s]]:
        """Runs slab by slab, without those that are nowhere."""
        return by_slab(locations[locations != _NONE], self._slabs)

    def _slab_of(self, rows: pa.RecordBatch, runs: InRuns) -> Slab:
        times = microseconds(rows.column(self._time_column))
        if runs.bounds is not None and runs.order is not None:
            times = np.maximum.reduceat(times[runs.order], runs.bounds[:-1])
        return Slab(rows, runs.hashes, runs.bounds, times, runs.order)

    def _file(self, slab: Slab, numbers: Int64s) -> Int64s:
        """Files a slab; returns the locations of its runs."""
        first = self._next_slab << RUN_BITS
        self._slabs[self._next_slab], self._numbers[self._next_slab] = slab, numbers
        self._next_slab += 1
        return np.arange(first, first + slab.hashes.size)

    def _sweep(self) -> None:
        """Drops runs of which all rows are too old, and hashes that have no others."""
        self._waiting = [waiting for waiting in self._waiting if waiting.newest >= self._expired_before]
        old: list[Int64s] = []
        for number, slab in self._slabs.items():
            assert slab.times is not None
            if slab.oldest < self._expired_before:
                runs = np.flatnonzero(slab.alive & (slab.times < self._expired_before))
                slab.oldest = self._expired_before
                drop([(slab, runs)])
                self._empty(self._numbers[number][runs])
                old.append(slab.hashes[runs])
        if old:
            self._unlink(distinct(np.concatenate(old)))
        self._compact()

    def _empty(self, numbers: Int64s) -> None:
        self._runs.table["location"][numbers] = _NONE
        self._runs.table["length"][numbers] = 0

    def _unlink(self, hashes: Int64s) -> None:
        """Takes empty runs off the young end of these hashes."""
        heads = self._index.find(hashes)
        lengths, older = self._runs.table["length"], self._runs.table["older"]
        while (gone := (heads != _NONE) & (np.where(heads == _NONE, 1, lengths[heads]) == 0)).any():
            numbers = heads[gone]
            heads[gone] = older[numbers]
            self._runs.free(numbers)
        self._index.replace(hashes, heads)

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
        self._runs.table["location"][moved] = self._file(slab, moved)
