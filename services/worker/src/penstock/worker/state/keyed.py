"""Rows by the hash of their keys: the cost of reading and replacing follows the rows touched, not those kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.worker.state.batches import empty, joined
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import ABSENT, HashIndex, Int64s
from penstock.worker.state.slabs import (
    RUN_BITS,
    Slab,
    by_slab,
    crowd_of,
    drop,
    in_runs,
    is_mostly_dead,
    rewritten,
    rows_of,
    spill_slabs,
)
from penstock.worker.state.tables import TOUCHED_COLUMN, KeyValueView, Part
from penstock.worker.state.times import microseconds

_SWEEPS: Final = 8  # rows outlive their time by at most this part of it


class KeyedState:
    """All rows of a hash, in slabs.

    `ttl_us` above 0 forgets hashes that nothing has touched for so long, by their rows' `time_column` or,
    without one, by the moment when they were put in: what `expire` was told last, a watermark or the time of a clock.
    """

    def __init__(
        self, schema: pa.Schema, *, ttl_us: int = 0, time_column: str | None = None, budget: Budget = UNLIMITED
    ) -> None:
        self._budget = budget
        self._schema = schema
        self._ttl_us = ttl_us
        self._time_column = time_column
        self._index = HashIndex()
        self.table = KeyValueView(lambda: self.rows, self._parts, budget, self._index.reserve)
        """What checkpoints see of it."""
        self._slabs: dict[int, Slab] = {}
        self._next_slab = 0
        self._moment: int | None = None
        self._swept_at: int | None = None

    @property
    def has_ttl(self) -> bool:
        """Whether rows are forgotten."""
        return self._ttl_us > 0

    @property
    def rows(self) -> int:
        """How many rows are kept."""
        return sum(slab.kept for slab in self._slabs.values())

    @property
    def nbytes(self) -> int:
        """How large rows and index are, wherever they are."""
        return self._index.nbytes + sum(slab.nbytes for slab in self._slabs.values())

    @property
    def memory_bytes(self) -> int:
        """What of that is in memory."""
        return self._index.nbytes + sum(slab.memory_bytes for slab in self._slabs.values())

    def spill(self, bytes: int) -> int:
        """Moves slabs to files."""
        return spill_slabs(self._slabs.values(), bytes, self._budget)

    def fetch(self, hashes: Int64s) -> pa.RecordBatch:
        """All rows kept for distinct hashes, those of one hash together."""
        locations = self._index.find(hashes)
        return rows_of(by_slab(locations[locations != ABSENT], self._slabs), self._schema)

    def replace(self, hashes: Int64s, rows: pa.RecordBatch) -> None:
        """Keeps exactly these rows for distinct hashes, which are those of the rows and perhaps more."""
        gone = hashes
        if rows.num_rows:
            slab = self._slab_of(rows)
            drop(by_slab(self._index.put(slab.hashes, self._add(slab)), self._slabs))
            gone = hashes[:0]
            if slab.hashes.size < hashes.size:
                gone = np.setdiff1d(hashes, slab.hashes, assume_unique=True)
        self._forget(gone)
        self.table.put(hashes, rows, self._moment if self._time_column is None else None)
        self._compact()
        self._budget.hold(self, lambda: self.memory_bytes)

    def load(self, rows: pa.RecordBatch, touched: Int64s | None) -> None:
        """Takes in rows of hashes that it does not have, with the moments when they came."""
        if rows.num_rows:
            slab = self._slab_of(rows, touched)
            self._index.insert(slab.hashes, self._add(slab))
            self._budget.hold(self, lambda: self.memory_bytes)

    def expire(self, moment: int) -> None:
        """Notes how late it is, which never goes back; now and then forgets what is too old by it."""
        if not self._ttl_us:
            return
        if self._moment is None and self._time_column is None:
            self._date(moment)
        self._moment = moment
        if self._swept_at is None or moment - self._swept_at >= max(1, self._ttl_us // _SWEEPS):
            self._swept_at = moment
            self._sweep(moment - self._ttl_us)

    def _parts(self) -> Sequence[Part]:
        """All rows, as they are now: slabs never change, but for what of them is kept."""
        return [self._part(slab) for slab in self._slabs.values()]

    def _part(self, slab: Slab) -> Part:
        alive, times = slab.alive.copy(), slab.times if self._time_column is None else None
        if self._moment is None:
            times = None
        if slab.bounds is None:
            return Part(slab.rows, alive, times)
        lengths = np.diff(slab.bounds)
        return Part(slab.rows, np.repeat(alive, lengths), None if times is None else np.repeat(times, lengths))

    def _slab_of(self, rows: pa.RecordBatch, touched: Int64s | None = None) -> Slab:
        runs = in_runs(rows)
        if runs.bounds is not None and runs.order is not None:
            rows = rows.take(pa.array(runs.order))
            touched = None if touched is None else touched[runs.order][runs.bounds[:-1]]
        return Slab(rows, runs.hashes, runs.bounds, self._times(rows, runs.bounds) if touched is None else touched)

    def _times(self, rows: pa.RecordBatch, bounds: Int64s | None) -> Int64s | None:
        if not self._ttl_us:
            return None
        runs = rows.num_rows if bounds is None else bounds.size - 1
        if self._time_column is None:
            return np.full(runs, np.iinfo(np.int64).max if self._moment is None else self._moment)
        times = microseconds(rows.column(self._time_column))
        latest: Int64s = times if bounds is None else np.maximum.reduceat(times, bounds[:-1])
        return latest

    def _date(self, moment: int) -> None:
        """Has what came before the first moment come at it."""
        for slab in self._slabs.values():
            slab.times = np.full(slab.hashes.size, moment)
            slab.oldest = moment

    def _add(self, slab: Slab) -> Int64s:
        """Files a slab; returns the locations of its runs, which the index does not know yet."""
        first = self._next_slab << RUN_BITS
        self._slabs[self._next_slab] = slab
        self._next_slab += 1
        return np.arange(first, first + slab.hashes.size)

    def _forget(self, hashes: Int64s) -> None:
        drop(by_slab(self._index.remove(hashes), self._slabs))

    def _sweep(self, before: int) -> None:
        for slab in self._slabs.values():
            if slab.times is not None and slab.oldest < before:
                old = slab.hashes[slab.alive & (slab.times < before)]
                self._forget(old)
                self.table.put(old, empty(self._schema), None)
                slab.oldest = before
        self._compact()

    def _compact(self) -> None:
        for number in [number for number, slab in self._slabs.items() if not slab.kept]:
            del self._slabs[number]
        for number in [number for number, slab in self._slabs.items() if is_mostly_dead(slab)]:
            self._rewrite([number])
        while (crowd := crowd_of(self._slabs)) is not None:
            self._rewrite(crowd)

    def _rewrite(self, numbers: Iterable[int]) -> None:
        """Puts what is still kept of some slabs into one."""
        slabs = [self._slabs.pop(number) for number in numbers]
        old = [(slab, np.flatnonzero(slab.alive)) for slab in slabs]
        slab = rewritten(old, self._schema)
        self._index.move(slab.hashes, self._add(slab))


def loaded(state: KeyedState, rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Puts the rows of files into state; returns them as they are there."""
    plain = rows.select(schema.names).combine_chunks()
    batches = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in plain.to_batches()]
    touched = rows[TOUCHED_COLUMN]
    has_times = state.has_ttl and touched.null_count == 0
    begin = 0
    for batch in batches:
        end = begin + batch.num_rows
        state.load(batch, touched[begin:end].to_numpy() if has_times else None)
        begin = end
    return joined(batches, schema)


def unhashed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without the hash of their keys, their last column."""
    return rows.select(rows.schema.names[:-1])
