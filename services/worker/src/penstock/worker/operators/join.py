"""Joins without windows: both sides are kept by their keys, and each row is joined with what the other side has.

Where only rows of one side came for a key, they alone are joined, with what the other side keeps, so that the cost is
that of the rows that came and of those that they meet. That is not enough where a row of the other side may have lost
its last match or got its first one: there, all rows of the key are joined as they were and as they are, and the
difference leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.program import COUNT_COLUMN, LEFT, RIGHT, JoinKind
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.difference import difference
from penstock.worker.operators.partials import with_rows
from penstock.worker.operators.queries import Query
from penstock.worker.operators.sides import JoinQuery, Sides
from penstock.worker.state.batches import empty, joined
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import Int64s, are_among, distinct
from penstock.worker.state.keyed import KeyedState, loaded, unhashed
from penstock.worker.state.lifetimes import Lifetime
from penstock.worker.state.log import KeyedLog
from penstock.worker.state.slabs import row_hashes
from penstock.worker.state.tables import ExpiringTimeKey, StateTable

_OTHER: Final = {LEFT: RIGHT, RIGHT: LEFT}
_ALONE: Final = {
    LEFT: frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI}),
    RIGHT: frozenset({JoinKind.INNER, JoinKind.RIGHT}),
}
"""The joins whose results for the other side's rows do not depend on this side's."""
_MATCHED_ONLY: Final = frozenset({JoinKind.INNER, JoinKind.SEMI})
"""The joins that have no result of a row that meets none."""
_CAME: Final = pa.field("_came", TIMESTAMP_TYPE, nullable=False)
"""When a row came by the clock, which is kept beside it."""
# What waits for a flush, and so the memory that one takes, has this bound: beyond it there is one ahead of its time.
_MOST_PENDING_BYTES: Final = 8 << 20


class Side(Protocol):
    """What is kept of one side. Rows are hashed by their keys, the hash last."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def table(self) -> StateTable: ...

    def fetch(self, hashes: Int64s) -> pa.RecordBatch:
        """All rows of distinct hashes."""
        ...

    async def taken(self, rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Rows that come in as rows that are kept."""
        ...

    async def change(self, rows: pa.RecordBatch) -> None:
        """Rows have come, or were taken back."""
        ...

    async def changed(self, before: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same, where all rows of their keys, and perhaps of others, were fetched. Returns what they are now."""
        ...

    def expire(self, watermark: int | None) -> None:
        """Forgets what is too old, by a watermark or by the clock."""
        ...

    def restore(self, rows: pa.Table) -> None:
        """Takes in what a checkpoint has."""
        ...

    async def close(self) -> None:
        """Frees what it holds."""
        ...


class RowsThatStay:
    """Rows that are never taken back, each kept for some time from its own on, or from when it came by the clock."""

    def __init__(self, rows: pa.Schema, lifetime: Lifetime, budget: Budget = UNLIMITED) -> None:
        self._lifetime = lifetime
        self._rows = rows
        self._schema = rows if lifetime.clock is None else rows.append(_CAME)
        time_column = TIMESTAMP_COLUMN if lifetime.clock is None else _CAME.name
        self._log = KeyedLog(self._schema, time_column, budget)
        self.table = ExpiringTimeKey(time_column, budget)

    @property
    def rows(self) -> int:
        return self._log.rows

    @property
    def nbytes(self) -> int:
        return self._log.nbytes

    def fetch(self, hashes: Int64s) -> pa.RecordBatch:
        found = self._log.fetch(hashes)
        return found if self._lifetime.clock is None else found.select(self._rows.names)

    async def taken(self, rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return joined([pa.RecordBatch.from_arrays(batch.columns, schema=self._rows) for batch in rows], self._rows)

    async def change(self, rows: pa.RecordBatch) -> None:
        if self._lifetime.clock is not None:
            came = pa.repeat(pa.scalar(self._lifetime.clock(), pa.int64()), rows.num_rows).view(_CAME.type)
            rows = pa.RecordBatch.from_arrays([*rows.columns, came], schema=self._schema)
        self._log.add(rows)
        self.table.add([rows])

    async def changed(self, before: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        await self.change(rows)
        return joined([before, self._log.unexpired(rows) if self._lifetime.clock is None else rows], self._rows)

    def expire(self, watermark: int | None) -> None:
        keeping_us, moment = self._lifetime.us, self._lifetime.moment(watermark)
        if keeping_us and moment is not None:
            self._log.expire(moment - keeping_us, keeping_us)
            self.table.expire(moment - keeping_us)

    def restore(self, rows: pa.Table) -> None:
        for batch in rows.select(self._schema.names).combine_chunks().to_batches():
            self._log.add(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))

    async def close(self) -> None:
        pass


class RowsThatChange:
    """Rows that can be taken back, each once with how often it is there; a key is kept for some time after a change."""

    def __init__(self, count: Query, lifetime: Lifetime, budget: Budget = UNLIMITED) -> None:
        self._lifetime = lifetime
        self._count = count
        time_column = TIMESTAMP_COLUMN if lifetime.clock is None else None
        self._state = KeyedState(count.output, ttl_us=lifetime.us, time_column=time_column, budget=budget)

    @property
    def rows(self) -> int:
        return self._state.rows

    @property
    def nbytes(self) -> int:
        return self._state.nbytes

    @property
    def table(self) -> StateTable:
        return self._state.table

    def fetch(self, hashes: Int64s) -> pa.RecordBatch:
        return self._state.fetch(hashes)

    async def taken(self, rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return await self._count.run(rows)

    async def change(self, rows: pa.RecordBatch) -> None:
        hashes = distinct(row_hashes(rows))
        await self._merged(hashes, self._state.fetch(hashes), rows)

    async def changed(self, before: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        hashes = distinct(row_hashes(rows))
        is_touched = are_among(row_hashes(before), hashes)
        touched, others = (before.filter(pa.array(chosen)) for chosen in (is_touched, ~is_touched))
        return joined([others, await self._merged(hashes, touched, rows)], self._count.output)

    async def _merged(self, hashes: Int64s, before: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        after = await self._count.run([unhashed(before), unhashed(rows)]) if before.num_rows else rows
        self._state.replace(hashes, after)
        return after

    def expire(self, watermark: int | None) -> None:
        if (moment := self._lifetime.moment(watermark)) is not None:
            self._state.expire(moment)

    def restore(self, rows: pa.Table) -> None:
        self.expire(None)  # what has been kept for a while is not as new
        loaded(self._state, rows, self._count.output)

    async def close(self) -> None:
        await self._count.close()


class Joins:
    """Both sides, and the rows that wait for the next flush. Changes leave, or rows if none is ever taken back."""

    late_rows = 0

    def __init__(
        self, kind: JoinKind, sides: Sides, kept: dict[str, Side], query: JoinQuery, *, gives_changes: bool
    ) -> None:
        self._kind = kind
        self._sides = sides
        self._kept = kept
        self._query = query
        self._gives_changes = gives_changes
        self.tables = {side: one.table for side, one in kept.items()}
        self._pending: dict[str, list[pa.RecordBatch]] = {LEFT: [], RIGHT: []}

    @property
    def holds_changes(self) -> bool:
        return any(self._pending.values())

    @property
    def state_rows(self) -> int:
        return sum(side.rows for side in self._kept.values())

    @property
    def state_bytes(self) -> int:
        return sum(side.nbytes for side in self._kept.values()) + self._pending_bytes

    @property
    def _pending_bytes(self) -> int:
        return sum(batch.nbytes for batches in self._pending.values() for batch in batches)

    async def process(self, batches: Batches) -> Batches:
        for side, rows in self._sides.part(batches).items():
            self._pending[side] += rows
        if not self._gives_changes or self._pending_bytes > _MOST_PENDING_BYTES:
            return await self.flush()
        return ()

    async def flush(self) -> Batches:
        came = {side: await self._kept[side].taken(rows) for side, rows in self._pending.items()}
        self._pending = {LEFT: [], RIGHT: []}
        self._expire(None)
        results = [await self._alone(side, rows) for side, rows in self._taken_alone(came).items() if rows.num_rows]
        if any(rows.num_rows for rows in came.values()):
            results.append(await self._together(came))
        before, after = (joined([result[place] for result in results], self._query.output) for place in (0, 1))
        if not self._gives_changes and not before.num_rows:
            return with_rows([after])
        changes = difference(before, after, timed=False)
        # Where nothing is ever taken back, all that changed has come.
        return with_rows([changes if self._gives_changes else changes.select(self._query.output.names)])

    def _taken_alone(self, came: dict[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
        """Takes out the rows of keys for which nothing else came, where these can be joined alone. Of an inner join all
        can, one side after the other."""
        alone = {}
        for side, rows in list(came.items()):
            if self._kind is JoinKind.INNER:
                alone[side], came[side] = rows, rows.slice(0, 0)
            elif self._kind in _ALONE[side]:
                meets = are_among(row_hashes(rows), row_hashes(came[_OTHER[side]]))
                alone[side], came[side] = rows.filter(pa.array(~meets)), rows.filter(pa.array(meets))
        return alone

    async def _alone(self, side: str, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """What leaves and comes by rows of one side alone."""
        met = self._kept[_OTHER[side]].fetch(distinct(row_hashes(rows)))
        await self._kept[side].change(rows)
        if self._kind in _MATCHED_ONLY:
            is_met = are_among(row_hashes(rows), row_hashes(met))
            rows = rows if is_met.all() else rows.filter(pa.array(is_met))
        gone, come = [await self._joined(side, part, unhashed(met)) for part in _parted(unhashed(rows))]
        return gone, come

    async def _joined(self, side: str, rows: pa.RecordBatch, met: pa.RecordBatch) -> pa.RecordBatch:
        if not rows.num_rows:
            return empty(self._query.output)
        return await (self._query.run([rows], [met]) if side == LEFT else self._query.run([met], [rows]))

    async def _together(self, came: dict[str, pa.RecordBatch]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """What there is of the keys of some rows, before them and after."""
        hashes = distinct(np.concatenate([row_hashes(rows) for rows in came.values()]))
        before = {side: self._kept[side].fetch(hashes) for side in came}
        after = {
            side: await self._kept[side].changed(before[side], rows) if rows.num_rows else before[side]
            for side, rows in came.items()
        }
        old, current = [
            await self._query.run([unhashed(kept[LEFT])], [unhashed(kept[RIGHT])]) for kept in (before, after)
        ]
        return old, current

    async def advance(self, watermark: int) -> Batches:
        changes = await self.flush() if watermark == END_OF_TIME else ()
        self._expire(watermark)
        return changes

    def _expire(self, watermark: int | None) -> None:
        for side in self._kept.values():
            side.expire(watermark)

    async def restore(self, name: str, rows: pa.Table) -> None:
        self._kept[name].restore(rows)

    async def close(self) -> None:
        for side in self._kept.values():
            await side.close()
        await self._query.close()


def _parted(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that are taken back, each as often as it is, and those that come."""
    place = rows.schema.get_field_index(COUNT_COLUMN)
    if place < 0:
        return rows.slice(0, 0), rows
    counts = rows.column(place)
    gone = rows.filter(pc.less(counts, 0))
    gone = gone.set_column(place, rows.schema.field(place), pc.negate(gone.column(place)))
    return gone, rows.filter(pc.greater(counts, 0))
