"""State tables: what an operator or a source keeps, as checkpoints see it.

A table notes what changes. `freeze` hands over what did since the last time, in no time worth mentioning, since Arrow
rows never change; `Frozen.parts` makes a file's rows of it, later and in a thread. Nothing is noted before `begin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.program import HASH_COLUMN
from penstock.common.proto import checkpoint_pb2 as proto
from penstock.worker.state.blanks import blanks
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import Int64s
from penstock.worker.state.times import split_at

TOMBSTONE_COLUMN: Final = "_tombstone"
"""Of rows by hash: the hash has no rows any more, and the other columns mean nothing."""
TOUCHED_COLUMN: Final = "_touched"
"""Of rows by hash without a time of their own: the watermark, or the time of the clock, when they came."""

# What is noted is made less when it is more than this, and twice as much as after the last time.
_LEAST_ROWS: Final = 1 << 17


class TableKind(Enum):
    """How the files of a table are to be read."""

    GLOBAL_KEYED = proto.TABLE_KIND_GLOBAL_KEYED
    EXPIRING_TIME_KEY = proto.TABLE_KIND_EXPIRING_TIME_KEY
    KEY_VALUE = proto.TABLE_KIND_KEY_VALUE


class Frozen(Protocol):
    """What changed in a table between two barriers."""

    @property
    def expired_before(self) -> int | None:
        """Rows of earlier times are no longer in the table, whichever file has them."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether earlier files are of no use any more."""
        ...

    def parts(self) -> Iterator[pa.Table]:
        """What a file gets, some rows at a time; all rows of a hash are in one part. Takes its time."""
        ...


class StateTable(Protocol):
    """One table of an operator."""

    @property
    def kind(self) -> TableKind: ...

    def begin(self) -> None:
        """Notes changes from now on."""
        ...

    def freeze(self) -> Frozen:
        """What changed since the last time."""
        ...

    def put_back(self, frozen: Frozen) -> None:
        """What was frozen could not be written: it is part of the next one."""
        ...


class FrozenValues:
    """All values of a table."""

    expired_before = None
    is_whole = True

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._values = values

    def parts(self) -> Iterator[pa.Table]:
        names, values = list(self._values), list(self._values.values())
        yield pa.table({"key": pa.array(names, pa.string()), "value": pa.array(values, pa.binary())})


def values_of(rows: pa.Table) -> dict[str, bytes]:
    """What `FrozenValues` wrote."""
    return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


class GlobalKeyed:
    """Small values by name, written whole each time."""

    kind = TableKind.GLOBAL_KEYED

    def __init__(self, values: Callable[[], Mapping[str, bytes]]) -> None:
        self._values = values

    def begin(self) -> None: ...

    def freeze(self) -> Frozen:
        return FrozenValues(dict(self._values()))

    def put_back(self, frozen: Frozen) -> None: ...


class FrozenTimes:
    """Rows by time that came, and the time before which they are gone."""

    is_whole = False

    def __init__(self, column: str, batches: Sequence[pa.RecordBatch], expired_before: int) -> None:
        self.batches = tuple(batches)
        self.expired_before = expired_before
        self._column = column

    def parts(self) -> Iterator[pa.Table]:
        for batch in self.batches:
            _, kept = split_at(batch, self._column, self.expired_before)
            if kept.num_rows:
                yield pa.Table.from_batches([kept])


class ExpiringTimeKey:
    """Rows by the time in a column, which are kept until a time has passed."""

    kind = TableKind.EXPIRING_TIME_KEY

    def __init__(self, column: str, budget: Budget = UNLIMITED) -> None:
        self.column = column
        self._budget = budget
        self._noting = False
        self._batches: list[pa.RecordBatch] = []
        self._memory_bytes = 0
        self._spilled = 0  # how many of the first batches are in files, or too small for one
        self._rows = self._settled_rows = 0
        self._expired_before = int(np.iinfo(np.int64).min)

    def begin(self) -> None:
        self._noting = True

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Rows have come."""
        if not self._noting:
            return
        for batch in batches:
            if batch.num_rows:
                self._batches.append(batch)
                self._rows += batch.num_rows
                self._memory_bytes += batch.nbytes
        self._budget.hold(self, lambda: self._memory_bytes)

    def spill(self, bytes: int) -> int:
        """Moves what was noted first to files."""
        moved = 0
        while moved < bytes and self._spilled < len(self._batches):
            batch = self._batches[self._spilled]
            if (rows := self._budget.moved(batch)) is not None:
                self._batches[self._spilled] = rows
                self._memory_bytes -= batch.nbytes
                moved += batch.nbytes
            self._spilled += 1
        return moved

    @property
    def expired_before(self) -> int:
        return self._expired_before

    def expire(self, before: int) -> None:
        """Rows of earlier times are gone."""
        self._expired_before = before

    def excess(self) -> Sequence[pa.RecordBatch]:
        """What is noted, when it has become so much that it should be made less; what is gone is not in it."""
        if self._rows <= max(_LEAST_ROWS, 2 * self._settled_rows):
            return ()
        parts = (split_at(batch, self.column, self._expired_before)[1] for batch in self._batches)
        self.settle([part for part in parts if part.num_rows])
        return self._batches if self._rows > _LEAST_ROWS else ()

    def settle(self, batches: Sequence[pa.RecordBatch]) -> None:
        """The same as what is noted, in fewer rows."""
        self._batches = list(batches)
        self._rows = self._settled_rows = sum(batch.num_rows for batch in batches)
        self._memory_bytes, self._spilled = sum(batch.nbytes for batch in batches), 0
        self._budget.hold(self, lambda: self._memory_bytes)

    def freeze(self) -> Frozen:
        frozen = FrozenTimes(self.column, self._batches, self._expired_before)
        self.settle(())
        return frozen

    def put_back(self, frozen: Frozen) -> None:
        assert isinstance(frozen, FrozenTimes)
        self._batches[:0] = frozen.batches
        self._rows += sum(batch.num_rows for batch in frozen.batches)
        self._memory_bytes += sum(batch.nbytes for batch in frozen.batches)
        self._spilled = 0


class Change:
    """Hashes that have only these rows from now on, touched at a time, or at a time each, if they have none of their
    own."""

    __slots__ = ("hashes", "rows", "touched")

    def __init__(self, hashes: Int64s, rows: pa.RecordBatch, touched: int | pa.Array | None) -> None:
        self.hashes = hashes
        self.rows = rows
        self.touched = touched


class FrozenChanges:
    """Changes by hash, of which the last of each hash counts."""

    expired_before = None
    is_whole = False

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = tuple(changes)

    def parts(self) -> Iterator[pa.Table]:
        gone = [change.hashes[~np.isin(change.hashes, _hashes(change.rows))] for change in self.changes]
        hashes = [
            np.concatenate([_hashes(change.rows), without]) for change, without in zip(self.changes, gone, strict=True)
        ]
        for change, without, mask in zip(self.changes, gone, of_last(hashes), strict=True):
            if (rows := kept_rows(_changed(change, without), mask, tombstones=True)).num_rows:
                yield rows


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows that a table has, and when each came where they have no time of their own."""

    rows: pa.RecordBatch
    kept: npt.NDArray[np.bool_]
    """Which of them it has."""
    touched: Int64s | None


class FrozenWhole:
    """All rows of a table, whatever was written before."""

    expired_before = None
    is_whole = True

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)

    def parts(self) -> Iterator[pa.Table]:
        return (_kept(part) for part in self._parts if part.kept.any())


class KeyValueView:
    """Rows by the hash of their keys. Changes are noted until they are more than all that there is: then that is noted
    instead."""

    kind = TableKind.KEY_VALUE

    def __init__(
        self,
        rows: Callable[[], int],
        parts: Callable[[], Sequence[Part]],
        budget: Budget = UNLIMITED,
        expect: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._rows = rows
        self._parts = parts
        self.expect = expect
        """Is told how many rows are about to be restored."""
        self._budget = budget
        self._noting = False
        self._changes: list[Change] = []
        self._memory_bytes = 0
        self._spilled = 0  # how many of the first changes are in files, or too small for one
        self._noted_rows = 0
        self._is_whole = False

    def begin(self) -> None:
        self._noting = True

    def put(self, hashes: Int64s, rows: pa.RecordBatch, touched: int | None) -> None:
        """Distinct hashes have exactly these rows now."""
        if self._noting and not self._is_whole and hashes.size:
            self._note(Change(hashes, rows, touched))

    def note(self, rows: pa.Table) -> None:
        """Rows of files, of which each hash has all its rows there, are as if they had just come."""
        touched = rows[TOUCHED_COLUMN].combine_chunks()
        plain = rows.drop_columns([TOMBSTONE_COLUMN, TOUCHED_COLUMN]).combine_chunks()
        begin = 0
        for batch in plain.to_batches():
            self._note(Change(np.unique(_hashes(batch)), batch, touched.slice(begin, batch.num_rows)))
            begin += batch.num_rows

    def freeze(self) -> Frozen:
        frozen = FrozenWhole(self._parts()) if self._is_whole else FrozenChanges(self._changes)
        self._forget()
        self._is_whole = False
        return frozen

    def put_back(self, frozen: Frozen) -> None:
        if isinstance(frozen, FrozenChanges):
            self._changes[:0] = frozen.changes
            self._noted_rows += sum(change.hashes.size for change in frozen.changes)
            self._memory_bytes += sum(change.rows.nbytes for change in frozen.changes)
            self._spilled = 0
        else:
            self._forget()
            self._is_whole = True

    def spill(self, bytes: int) -> int:
        """Moves what was noted first to files."""
        moved = 0
        while moved < bytes and self._spilled < len(self._changes):
            change = self._changes[self._spilled]
            if (rows := self._budget.moved(change.rows)) is not None:
                size = change.rows.nbytes
                self._changes[self._spilled] = Change(change.hashes, rows, change.touched)
                self._memory_bytes -= size
                moved += size
            self._spilled += 1
        return moved

    def _note(self, change: Change) -> None:
        self._changes.append(change)
        self._noted_rows += change.hashes.size
        self._memory_bytes += change.rows.nbytes
        if self._noted_rows > max(_LEAST_ROWS, 2 * self._rows()):
            self._forget()
            self._is_whole = True
        self._budget.hold(self, lambda: self._memory_bytes)

    def _forget(self) -> None:
        self._changes, self._noted_rows, self._memory_bytes, self._spilled = [], 0, 0, 0
        self._budget.hold(self, lambda: 0)


def kept_rows(rows: pa.Table, mask: npt.NDArray[np.bool_], *, tombstones: bool) -> pa.Table:
    """The chosen rows of a file, with or without what says that a hash has none."""
    chosen = mask if tombstones else mask & ~rows[TOMBSTONE_COLUMN].to_numpy()
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def of_last(hashes: Sequence[Int64s]) -> list[npt.NDArray[np.bool_]]:
    """Of several arrays, which hashes are in no later one. An array that is larger than all behind it together is
    looked up in those; the rest is sorted once, however many they are."""
    if not any(one.size for one in hashes):
        return [np.ones(0, np.bool_) for _ in hashes]
    sizes = [one.size for one in hashes]
    if len(sizes) > 1 and sizes[0] > sum(sizes[1:]):
        in_later = pc.is_in(pa.array(hashes[0]), value_set=pa.array(np.concatenate(hashes[1:])))
        return [~in_later.to_numpy(zero_copy_only=False), *of_last(hashes[1:])]
    every = np.concatenate(hashes)
    order = np.argsort(every)
    ordered = every[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    places = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[order]
    last = np.maximum.reduceat(places, begins)
    is_last = np.empty(every.size, np.bool_)
    is_last[order] = places == np.repeat(last, np.diff(begins, append=every.size))
    return np.split(is_last, np.cumsum(sizes)[:-1])


def _changed(change: Change, gone: Int64s) -> pa.Table:
    """The rows of a change, and a tombstone for each hash that has none."""
    rows = change.rows
    touched = _each(change.touched, rows.num_rows)
    touched = pa.chunked_array([touched, pa.nulls(gone.size, pa.int64())])
    columns = [
        pa.chunked_array([column, pa.array(gone) if field.name == HASH_COLUMN else blanks(gone.size, field.type)])
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    is_tombstone = pa.array(np.arange(rows.num_rows + gone.size) >= rows.num_rows)
    return _file_rows(rows.schema.names, columns, is_tombstone, touched)


def _kept(part: Part) -> pa.Table:
    rows = pa.Table.from_batches([part.rows]).filter(pa.array(part.kept))
    times = None if part.touched is None else pa.array(part.touched[part.kept])
    none_is_tombstone = pa.array(np.zeros(rows.num_rows, np.bool_))
    return _file_rows(rows.column_names, rows.columns, none_is_tombstone, _each(times, rows.num_rows))


def _file_rows(names: Sequence[str], columns: Sequence[Any], is_tombstone: Any, touched: Any) -> pa.Table:
    return pa.table([*columns, is_tombstone, touched], names=[*names, TOMBSTONE_COLUMN, TOUCHED_COLUMN])


def _each(touched: int | pa.Array | None, rows: int) -> pa.Array:
    return touched if isinstance(touched, pa.Array) else pa.repeat(pa.scalar(touched, pa.int64()), rows)


def _hashes(rows: pa.RecordBatch | pa.Table) -> Int64s:
    hashes: Int64s = rows.column(HASH_COLUMN).to_numpy()
    return hashes
