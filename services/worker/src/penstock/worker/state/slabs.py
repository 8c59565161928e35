"""Slabs: rows that never change, of which some are still kept; those of like size are joined now and then.

A change writes a new slab and leaves dead rows in older ones. Slabs of like size are joined and those with mostly dead
rows written anew, so that there are few and a row is copied only a few times (as in a log-structured merge tree).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.common.program import HASH_COLUMN
from penstock.worker.state.budget import Budget
from penstock.worker.state.gathering import Columns, columns_of, gathered
from penstock.worker.state.index import Int64s

RUN_BITS: Final = 28  # a location is a slab's number and, in so many bits, the number of a run of rows in it
_PLACE_BITS: Final = 32
_FIRST_TIER_ROWS: Final = 1 << 10
_TIER_SLABS: Final = 16  # slabs of about one size that become one
_TIER_BITS: Final = _TIER_SLABS.bit_length() - 1
# Slabs of this size are joined no more: a copy of a tier stays short, and the offsets of text have 32 bits.
_LARGE_ROWS: Final = 1 << 17
_LARGE_BYTES: Final = 4 << 20


class Slab:
    """Rows that never change, in runs of one hash, and which of them are still kept."""

    __slots__ = (
        "_columns", "alive", "bounds", "hashes", "is_spilled", "kept", "nbytes", "oldest", "order", "row_bytes", "rows",
        "size", "times",
    )  # fmt: skip

    def __init__(
        self,
        rows: pa.RecordBatch,
        hashes: Int64s,
        bounds: Int64s | None,
        times: Int64s | None,
        order: Int64s | None = None,
    ) -> None:
        self.rows = rows
        self._columns: Columns | None = None
        self.size: int = rows.num_rows
        self.hashes = hashes
        """One for each run of rows."""
        self.bounds = bounds
        """Where each run begins, and where the last one ends; None when each is a single row."""
        self.order = order
        """Where the rows of each run are, one run after the other; None when they are next to each other."""
        self.times = times
        """When each run was last touched; None when runs are kept for ever."""
        self.alive = np.ones(hashes.size, np.bool_)
        """Which runs are still kept."""
        self.kept: int = self.size
        self.is_spilled = False
        self.oldest = 0 if times is None else int(times.min())
        """No run that is still kept was last touched before this."""
        arrays = (array for array in (hashes, bounds, order, times, self.alive) if array is not None)
        self.row_bytes: int = rows.nbytes
        self.nbytes: int = self.row_bytes + sum(array.nbytes for array in arrays if array.flags.owndata)
        """Wherever the rows are."""

    @property
    def memory_bytes(self) -> int:
        """What of it is in memory."""
        return self.nbytes - self.row_bytes if self.is_spilled else self.nbytes

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
        if self.times is not None and not self.times.flags.owndata:  # else they would keep the rows in memory
            self.times = self.times.copy()
            self.nbytes += self.times.nbytes
        self.rows, self._columns = rows, None
        self.is_spilled = True

    @property
    def columns(self) -> Columns:
        """Its rows, to gather some from."""
        if self._columns is None:
            self._columns = columns_of(self.rows)
        return self._columns

    def places(self, runs: Int64s) -> Int64s:
        """Where the rows of some runs are, one run after the other."""
        if self.bounds is None:
            return runs
        lengths = self.lengths(runs)
        ends = np.cumsum(lengths)
        shifts = np.repeat(self.bounds[runs] - ends + lengths, lengths)
        places: Int64s = np.arange(shifts.size) + shifts
        return places if self.order is None else self.order[places]


def row_hashes(rows: pa.RecordBatch) -> Int64s:
    """The hash of each row's keys, without a copy."""
    hashes: Int64s = rows.column(HASH_COLUMN).to_numpy().view(np.int64)
    return hashes


@dataclass(frozen=True, slots=True)
class InRuns:
    """Rows by their hashes, those of one hash as they came."""

    hashes: Int64s
    """One for each run of rows: as they came where each is a single row, else in their order."""
    bounds: Int64s | None
    """Where each run begins in the order of hashes, and where the last one ends; None where each is a single row."""
    order: Int64s | None
    """Where the rows of each run are; None where each is a single row."""

    @property
    def lengths(self) -> Int64s:
        """How many rows each run has."""
        return np.ones(self.hashes.size, np.int64) if self.bounds is None else np.diff(self.bounds)


def in_runs(rows: pa.RecordBatch) -> InRuns:
    """Which rows are of one hash."""
    hashes = row_hashes(rows)
    ordered = np.sort(hashes)
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    if begins.size == hashes.size:
        return InRuns(hashes, None, None)
    bounds = np.append(begins, hashes.size)
    # Two sorts by the processor's vectors take a sixth of numpy's stable one.
    runs = np.repeat(np.arange(begins.size), np.diff(bounds))
    order = np.sort(runs << _PLACE_BITS | np.argsort(hashes)) & ((1 << _PLACE_BITS) - 1)
    return InRuns(ordered[begins], bounds, order)


def rows_of(runs: Sequence[tuple[Slab, Int64s]], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of some runs of each slab."""
    return gathered([(slab.columns, slab.places(chosen)) for slab, chosen in runs], schema)


def rewritten(old: Sequence[tuple[Slab, Int64s]], schema: pa.Schema) -> Slab:
    """The same runs in one slab."""
    rows = rows_of(old, schema)
    lengths = np.concatenate([slab.lengths(runs) for slab, runs in old])
    parts = [slab.times[runs] for slab, runs in old if slab.times is not None]
    times = np.concatenate(parts) if parts else None
    if (lengths == 1).all():
        return Slab(rows, row_hashes(rows), None, times)
    hashes = np.concatenate([slab.hashes[runs] for slab, runs in old])
    return Slab(rows, hashes, np.append(0, np.cumsum(lengths)), times)


def by_slab(locations: Int64s, slabs: Mapping[int, Slab]) -> Sequence[tuple[Slab, Int64s]]:
    """The runs at some locations, slab by slab."""
    locations = np.sort(locations)
    numbers, runs = locations >> RUN_BITS, locations & ((1 << RUN_BITS) - 1)
    begins = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    return [(slabs[int(numbers[begin])], runs[begin:end]) for begin, end in pairwise([*begins, locations.size])]


def drop(runs: Iterable[tuple[Slab, Int64s]]) -> None:
    """Some runs of each slab are no longer kept."""
    for slab, chosen in runs:
        slab.alive[chosen] = False
        slab.kept -= int(slab.lengths(chosen).sum())


def crowd_of(slabs: Mapping[int, Slab]) -> Sequence[int] | None:
    """Slabs of one tier that are as many as it may have."""
    tiers: dict[int, list[int]] = {}
    for number, slab in slabs.items():
        if slab.kept < _LARGE_ROWS and slab.kept_bytes < _LARGE_BYTES:
            tier = tiers.setdefault(_tier(slab), [])
            tier.append(number)
            if len(tier) == _TIER_SLABS:
                return tier
    return None


def spill_slabs(slabs: Iterable[Slab], bytes: int, budget: Budget) -> int:
    """Moves slabs to files, the oldest first: what changes is in new ones. Returns how much that was."""
    moved = 0
    for slab in slabs:
        if moved >= bytes:
            break
        if not slab.is_spilled and (rows := budget.moved(slab.rows)) is not None:
            moved += slab.row_bytes
            slab.move(rows)
    return moved


def is_mostly_dead(slab: Slab) -> bool:
    return slab.size - slab.kept > max(slab.kept, _FIRST_TIER_ROWS)


def _tier(slab: Slab) -> int:
    return ((slab.kept // _FIRST_TIER_ROWS).bit_length() + _TIER_BITS - 1) // _TIER_BITS
