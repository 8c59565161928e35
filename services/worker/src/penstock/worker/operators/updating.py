"""Updating aggregates: state by key, whose results are changes, at most one for each key at a time."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.difference import difference
from penstock.worker.operators.partials import with_rows
from penstock.worker.operators.queries import Query
from penstock.worker.state.batches import empty, joined
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import are_among, distinct
from penstock.worker.state.keyed import KeyedState, loaded, unhashed
from penstock.worker.state.lifetimes import Lifetime
from penstock.worker.state.slabs import row_hashes

_GROUPS: Final = "groups"
# So many rows wait at least until they are merged.
_LEAST_FRESH_ROWS: Final = 1 << 16
# What waits for a flush, and so the memory that one takes, has this bound: beyond it there is one ahead of its time.
_MOST_PENDING_BYTES: Final = 32 << 20


class UpdatingAggregates:
    """What is kept of each key, and the rows that wait for the next flush."""

    late_rows = 0

    def __init__(self, lifetime: Lifetime, merge: Query, final: Query, budget: Budget = UNLIMITED) -> None:
        self._lifetime = lifetime
        self._merge = merge
        self._final = final
        has_time = lifetime.clock is None and TIMESTAMP_COLUMN in merge.output.names
        time_column = TIMESTAMP_COLUMN if has_time else None
        self._kept = KeyedState(merge.output, ttl_us=lifetime.us, time_column=time_column, budget=budget)
        self.tables = {_GROUPS: self._kept.table}
        self._fresh: list[pa.RecordBatch] = []
        self._fresh_rows = 0
        self._merged = empty(merge.output)
        """What came before them since the last flush, merged, with hashes."""

    @property
    def holds_changes(self) -> bool:
        return bool(self._fresh_rows or self._merged.num_rows)

    @property
    def state_rows(self) -> int:
        pending: int = self._fresh_rows + self._merged.num_rows
        return self._kept.rows + pending

    @property
    def state_bytes(self) -> int:
        return self._kept.nbytes + self._pending_bytes

    @property
    def _pending_bytes(self) -> int:
        return sum(batch.nbytes for batch in (self._merged, *self._fresh))

    async def process(self, batches: Batches) -> Batches:
        self._fresh += with_rows(batches)
        self._fresh_rows = sum(batch.num_rows for batch in self._fresh)
        is_much = self._pending_bytes > _MOST_PENDING_BYTES
        if not is_much and self._fresh_rows <= max(_LEAST_FRESH_ROWS, 2 * self._merged.num_rows):
            return ()
        await self._merge_fresh()
        return await self.flush() if 2 * self._pending_bytes > _MOST_PENDING_BYTES else ()

    async def _merge_fresh(self) -> None:
        if self._fresh:
            self._merged = await self._merge.run([unhashed(self._merged), *self._fresh])
            self._fresh, self._fresh_rows = [], 0

    async def flush(self) -> Batches:
        await self._merge_fresh()
        changed, self._merged = self._merged, empty(self._merge.output)
        hashes = distinct(row_hashes(changed))
        self._expire(None)
        before = self._kept.fetch(hashes)
        after = await self._put_together(before, changed)
        self._kept.replace(hashes, after)
        old, current = [await self._final.run([unhashed(rows)]) for rows in (before, after)]
        return with_rows([difference(old, current, timed=False)])

    async def _put_together(self, before: pa.RecordBatch, changed: pa.RecordBatch) -> pa.RecordBatch:
        """What is kept and what came of some keys; of those of which nothing was kept, it is what came."""
        if not before.num_rows:
            return changed
        is_known = are_among(row_hashes(changed), row_hashes(before))
        known, new = (changed.filter(pa.array(mask)) for mask in (is_known, ~is_known))
        merged = await self._merge.run([unhashed(before), unhashed(known)])
        return joined([merged, new], self._merge.output)

    async def advance(self, watermark: int) -> Batches:
        changes = await self.flush() if watermark == END_OF_TIME else ()
        self._expire(watermark)
        return changes

    def _expire(self, watermark: int | None) -> None:
        if (moment := self._lifetime.moment(watermark)) is not None:
            self._kept.expire(moment)

    async def restore(self, name: str, rows: pa.Table) -> None:
        self._expire(None)  # what has been kept for a while is not as new
        loaded(self._kept, rows, self._merge.output)

    async def close(self) -> None:
        await self._merge.close()
        await self._final.close()
