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
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import distinct
from penstock.worker.state.keyed import KeyedState, loaded, unhashed
from penstock.worker.state.lifetimes import Lifetime
from penstock.worker.state.slabs import row_hashes

_GROUPS: Final = "groups"
# So many rows wait at least until they are merged.
_LEAST_FRESH_ROWS: Final = 1 << 16
# What waits for a flush, and so the memory that one takes, has this bound: beyond it there is one ahead of its time.
_MOST_PENDING_BYTES: Final = 8 << 20


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
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._merged_rows = 0  # how many of them came out of a merge

    @property
    def holds_changes(self) -> bool:
        return bool(self._pending)

    @property
    def state_rows(self) -> int:
        return self._kept.rows + self._pending_rows

    @property
    def state_bytes(self) -> int:
        return self._kept.nbytes + self._pending_bytes

    @property
    def _pending_bytes(self) -> int:
        return sum(batch.nbytes for batch in self._pending)

    async def process(self, batches: Batches) -> Batches:
        self._pending += with_rows(batches)
        self._pending_rows = sum(batch.num_rows for batch in self._pending)
        is_much = self._pending_bytes > _MOST_PENDING_BYTES
        if not is_much and self._pending_rows - self._merged_rows <= max(_LEAST_FRESH_ROWS, 2 * self._merged_rows):
            return ()
        merged = unhashed(await self._merge.run(self._pending))
        self._pending = list(with_rows([merged]))
        self._pending_rows = self._merged_rows = merged.num_rows
        return await self.flush() if 2 * self._pending_bytes > _MOST_PENDING_BYTES else ()

    async def flush(self) -> Batches:
        changed = await self._merge.run(self._pending)
        self._pending, self._pending_rows, self._merged_rows = [], 0, 0
        hashes = distinct(row_hashes(changed))
        self._expire(None)
        before = self._kept.fetch(hashes)
        after = await self._merge.run([unhashed(before), unhashed(changed)]) if before.num_rows else changed
        self._kept.replace(hashes, after)
        old, current = [await self._final.run([unhashed(rows)]) for rows in (before, after)]
        return with_rows([difference(old, current, timed=False)])

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
