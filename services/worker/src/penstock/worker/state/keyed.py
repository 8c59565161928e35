"""Rows by the hash of their keys: the cost of reading and replacing follows the rows touched, not those kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.common.program import HASH_COLUMN
from penstock.worker.state.batches import empty, joined
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import ABSENT, HashIndex, Int64s
from penstock.worker.state.tables import TOUCHED_COLUMN, KeyValueView, Part
from penstock.worker.state.times import microseconds

_RUN_BITS: Final = 28  # a location is a slab's number and, in so many bits, the number of a run of rows in it
_FIRST_TIER_ROWS: Final = 1 << 10
_TIER_SLABS: Final = 16  # slabs of about one size that become one
_TIER_BITS: Final = _TIER_SLABS.bit_length() - 1
# Slabs of this size are joined no more: a copy of a tier stays short, and the offsets of text have 32 bits.
_LARGE_ROWS: Final = 1 << 17
_LARGE_BYTES: Final = 4 << 20
_SWEEPS: Final = 8  # rows outlive their time by at most this part of it


class Slab:
    """Rows that never change, those of one hash next to each other, and which of them are still kept."""

    __slots__ = ("alive", "bounds", "hashes", "is_spilled", "kept", "nbytes", "oldest", "rows", "size", "times")

    def __init__(self, rows: pa.RecordBatch, hashes: Int64s, bounds: Int64s | None, times: Int64s | None) -> None:
        self.rows = rows
        self.size: int = rows.num_rows
        self.hashes = hashes
        """One for each run of rows."""
        self.bounds = bounds
        """Where each run begins, and where the last one ends; None when each is a single row."""
        self.times = times
        """When each run was last touched; None when runs are kept for ever."""
        self.alive = np.ones(hashes.size, np.bool_)
        """Which runs are still kept."""
        self.kept: int = self.size
        self.is_spilled = False
        self.oldest = 0 if times is None else int(times.min())
        """No run that is still kept was last touched before this."""
        arrays = (array for array in (hashes, bounds, times, self.alive) if array is not None)
        self.nbytes: int = rows.nbytes + sum(array.nbytes for array in arrays if array.flags.owndata)
        """Wherever the rows are."""

    @property
    def kept_bytes(self) -> int:
        """About how large the rows are that are still kept."""
        return self.nbytes * self.kept // max(1, self.size)

    def lengths(self, runs: Int64s) -> Int64s:
        """How many rows each run has."""
        return np.ones(runs.size, np.int64) if self.bounds is None else self.bounds[runs + 1] - self.bounds[runs]

    def move(self, rows: pa.RecordBatch) -> None:
        """The same rows are elsewhere now."""
        if self.bounds is None:
            self.hashes = row_hashes(rows)
        self.rows = rows
        self.is_spilled = True

    def take(self, runs: Int64s) -> pa.RecordBatch:
        """The rows of some runs."""
        if self.bounds is None:
            return self.rows.take(pa.array(runs))
        lengths = self.lengths(runs)
        ends = np.cumsum(lengths)
        shifts = np.repeat(self.bounds[runs] - ends + lengths, lengths)
        return self.rows.take(pa.array(np.arange(lengths.sum()) + shifts))


class KeyedState:
    """All rows of a hash, in slabs of Arrow rows.

    A change writes a new slab and leaves dead rows in older ones. Slabs of like size are joined and those with mostly
    dead rows written anew, so that there are few and a row is copied only a few times (as in a log-structured merge
    tree). `ttl_us` above 0 forgets hashes that nothing has touched for so long, by their rows' `time_column` or,
    without one, by the watermark when they were put in.
    """

    def __init__(
        self, schema: pa.Schema, *, ttl_us: int = 0, time_column: str | None = None, budget: Budget = UNLIMITED
    ) -> None:
        self._budget = budget
        self._schema = schema
        self._ttl_us = ttl_us
        self._time_column = time_column
        self.table = KeyValueView(lambda: self.rows, self._parts, budget)
        """What checkpoints see of it."""
        self._index = HashIndex()
        self._slabs: dict[int, Slab] = {}
        self._next_slab = 0
        self._watermark: int | None = None
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
        spilled: int = sum(slab.rows.nbytes for slab in self._slabs.values() if slab.is_spilled)
        return self.nbytes - spilled

    def spill(self, bytes: int) -> int:
        """Moves slabs to files, the oldest first: what changes is in new ones."""
        moved = 0
        for slab in self._slabs.values():
            if moved >= bytes:
                break
            if not slab.is_spilled and (rows := self._budget.moved(slab.rows)) is not None:
                moved += slab.rows.nbytes
                slab.move(rows)
        return moved

    def fetch(self, hashes: Int64s) -> pa.RecordBatch:
        """All rows kept for distinct hashes, those of one hash together."""
        locations = self._index.find(hashes)
        parts = [self._slabs[slab].take(runs) for slab, runs in _by_slab(locations[locations != ABSENT])]
        return joined(parts, self._schema)

    def replace(self, hashes: Int64s, rows: pa.RecordBatch) -> None:
        """Keeps exactly these rows for distinct hashes, which are those of the rows and perhaps more."""
        self._forget(hashes)
        if rows.num_rows:
            slab = self._slab_of(rows)
            self._index.insert(slab.hashes, self._add(slab))
        self.table.put(hashes, rows, self._watermark if self._time_column is None else None)
        self._compact()
        self._budget.hold(self, lambda: self.memory_bytes)

    def load(self, rows: pa.RecordBatch, touched: Int64s | None) -> None:
        """Takes in rows of hashes that it does not have, with the watermarks when they came."""
        if rows.num_rows:
            slab = self._slab_of(rows, touched)
            self._index.insert(slab.hashes, self._add(slab))
            self._budget.hold(self, lambda: self.memory_bytes)

    def expire(self, watermark: int) -> None:
        """Notes the watermark; now and then forgets what is too old by it."""
        if not self._ttl_us:
            return
        if self._watermark is None and self._time_column is None:
            self._date(watermark)
        self._watermark = watermark
        if self._swept_at is None or watermark - self._swept_at >= max(1, self._ttl_us // _SWEEPS):
            self._swept_at = watermark
            self._sweep(watermark - self._ttl_us)

    def _parts(self) -> Sequence[Part]:
        """All rows, as they are now: slabs never change, but for what of them is kept."""
        return [self._part(slab) for slab in self._slabs.values()]

    def _part(self, slab: Slab) -> Part:
        alive, times = slab.alive.copy(), slab.times if self._time_column is None else None
        if self._watermark is None:
            times = None
        if slab.bounds is None:
            return Part(slab.rows, alive, times)
        lengths = np.diff(slab.bounds)
        return Part(slab.rows, np.repeat(alive, lengths), None if times is None else np.repeat(times, lengths))

    def _slab_of(self, rows: pa.RecordBatch, touched: Int64s | None = None) -> Slab:
        hashes = row_hashes(rows)
        ordered = np.sort(hashes)
        begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        if begins.size == hashes.size:
            return Slab(rows, hashes, None, self._times(rows, None) if touched is None else touched)
        order = np.argsort(hashes, kind="stable")
        rows = rows.take(pa.array(order))
        bounds = np.append(begins, hashes.size)
        times = self._times(rows, bounds) if touched is None else touched[order][begins]
        return Slab(rows, ordered[begins], bounds, times)

    def _times(self, rows: pa.RecordBatch, bounds: Int64s | None) -> Int64s | None:
        if not self._ttl_us:
            return None
        runs = rows.num_rows if bounds is None else bounds.size - 1
        if self._time_column is None:
            return np.full(runs, np.iinfo(np.int64).max if self._watermark is None else self._watermark)
        times = microseconds(rows.column(self._time_column))
        latest: Int64s = times if bounds is None else np.maximum.reduceat(times, bounds[:-1])
        return latest

    def _date(self, watermark: int) -> None:
        """Has what came before the first watermark come with it."""
        for slab in self._slabs.values():
            slab.times = np.full(slab.hashes.size, watermark)
            slab.oldest = watermark

    def _add(self, slab: Slab) -> Int64s:
        """Files a slab; returns the locations of its runs, which the index does not know yet."""
        first = self._next_slab << _RUN_BITS
        self._slabs[self._next_slab] = slab
        self._next_slab += 1
        return np.arange(first, first + slab.hashes.size)

    def _forget(self, hashes: Int64s) -> None:
        for number, runs in _by_slab(self._index.remove(hashes)):
            slab = self._slabs[number]
            slab.alive[runs] = False
            slab.kept -= int(slab.lengths(runs).sum())

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
        for number in [number for number, slab in self._slabs.items() if _mostly_dead(slab)]:
            self._rewrite([number])
        while (crowd := self._crowd()) is not None:
            self._rewrite(crowd)

    def _crowd(self) -> Sequence[int] | None:
        """Slabs of one tier that are as many as it may have."""
        tiers: dict[int, list[int]] = {}
        for number, slab in self._slabs.items():
            if slab.kept < _LARGE_ROWS and slab.kept_bytes < _LARGE_BYTES:
                tier = tiers.setdefault(_tier(slab), [])
                tier.append(number)
                if len(tier) == _TIER_SLABS:
                    return tier
        return None

    def _rewrite(self, numbers: Iterable[int]) -> None:
        """Puts what is still kept of some slabs into one."""
        slabs = [self._slabs.pop(number) for number in numbers]
        old = [(slab, np.flatnonzero(slab.alive)) for slab in slabs]
        slab = _rewritten(old, self._schema)
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


def row_hashes(rows: pa.RecordBatch) -> Int64s:
    """The hash of each row's keys, without a copy."""
    hashes: Int64s = rows.column(HASH_COLUMN).to_numpy().view(np.int64)
    return hashes


def _rewritten(old: Sequence[tuple[Slab, Int64s]], schema: pa.Schema) -> Slab:
    rows = joined([slab.take(runs) for slab, runs in old], schema)
    lengths = np.concatenate([slab.lengths(runs) for slab, runs in old])
    parts = [slab.times[runs] for slab, runs in old if slab.times is not None]
    times = np.concatenate(parts) if parts else None
    if (lengths == 1).all():
        return Slab(rows, row_hashes(rows), None, times)
    hashes = np.concatenate([slab.hashes[runs] for slab, runs in old])
    return Slab(rows, hashes, np.append(0, np.cumsum(lengths)), times)


def _by_slab(locations: Int64s) -> Iterable[tuple[int, Int64s]]:
    """The runs among some locations, slab by slab."""
    if locations.size:
        locations = np.sort(locations)
        slabs = locations >> _RUN_BITS
        for part in np.split(locations, np.flatnonzero(slabs[1:] != slabs[:-1]) + 1):
            yield int(part[0]) >> _RUN_BITS, part & ((1 << _RUN_BITS) - 1)


def _mostly_dead(slab: Slab) -> bool:
    return slab.size - slab.kept > max(slab.kept, _FIRST_TIER_ROWS)


def _tier(slab: Slab) -> int:
    return ((slab.kept // _FIRST_TIER_ROWS).bit_length() + _TIER_BITS - 1) // _TIER_BITS
