"""Joins of one event time: the rows of both sides wait until it is complete."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.common.program import LEFT, RIGHT
from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.partials import with_rows
from penstock.worker.operators.sides import JoinQuery, Sides, portions
from penstock.worker.state.bins import Bins
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.tables import ExpiringTimeKey
from penstock.worker.state.times import split_at

_BIN_US: Final = 1_000_000


class InstantJoins:
    """A query that needs all rows of an event time of both sides at once, and tells the times apart itself."""

    holds_changes = False

    def __init__(self, sides: Sides, query: JoinQuery, budget: Budget = UNLIMITED) -> None:
        self._sides = sides
        self._query = query
        self._rows = {side: Bins(TIMESTAMP_COLUMN, _BIN_US, budget) for side in (LEFT, RIGHT)}
        self.tables = {side: ExpiringTimeKey(TIMESTAMP_COLUMN, budget) for side in (LEFT, RIGHT)}
        self._watermark = -END_OF_TIME
        self.late_rows = 0

    @property
    def state_rows(self) -> int:
        return sum(bins.rows for bins in self._rows.values())

    @property
    def state_bytes(self) -> int:
        return sum(bins.nbytes for bins in self._rows.values())

    async def process(self, batches: Batches) -> Batches:
        for side, rows in self._sides.part(batches).items():
            timely = [self._on_time(batch) for batch in rows]
            self._rows[side].add(timely)
            self.tables[side].add(timely)
        return ()

    def _on_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What comes behind the watermark, from a source that was idle, is late: the rest of its time has left."""
        late, on_time = split_at(batch, TIMESTAMP_COLUMN, self._watermark)
        self.late_rows += late.num_rows
        return on_time

    async def advance(self, watermark: int) -> Batches:
        self._watermark = watermark
        for table in self.tables.values():
            table.expire(watermark)
        taken = {side: dict(bins.take_until(watermark)) for side, bins in self._rows.items()}
        results = [await self._query.run(left, right) for left, right in portions(taken[LEFT], taken[RIGHT])]
        return with_rows(results)

    async def flush(self) -> Batches:
        return ()

    async def restore(self, name: str, rows: pa.Table) -> None:
        self._rows[name].add(rows.to_batches())

    async def close(self) -> None:
        await self._query.close()
