"""Joins with versions: each row of the left with what the right had of its key at the row's event time.

Both sides wait in bins until the watermark has passed their time. Of the right, the version of each key that is valid
then is kept by the hash of the key. So an advance costs what the rows do that it lets out and the keys that they touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.program import LAST_COLUMN, LEFT, OP_COLUMN, RIGHT
from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.partials import with_rows
from penstock.worker.operators.queries import Query
from penstock.worker.operators.sides import JoinQuery, Sides, portions
from penstock.worker.state.bins import Bins
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import Int64s, are_among, distinct
from penstock.worker.state.keyed import KeyedState, loaded
from penstock.worker.state.slabs import row_hashes
from penstock.worker.state.tables import ExpiringTimeKey, StateTable
from penstock.worker.state.times import split_at

VERSIONS: Final = "versions"
"""The table of the versions that are valid."""
_BIN_US: Final = 1_000_000


class TemporalJoins:
    """The rows of both sides that wait, and the version that each key has as of the watermark."""

    holds_changes = False

    def __init__(
        self, sides: Sides, versions: Query, query: JoinQuery, ttl_us: int, budget: Budget = UNLIMITED
    ) -> None:
        self._sides = sides
        self._versions = versions
        self._query = query
        self._kept = KeyedState(sides.right, ttl_us=ttl_us, time_column=TIMESTAMP_COLUMN, budget=budget)
        self._rows = {side: Bins(TIMESTAMP_COLUMN, _BIN_US, budget) for side in (LEFT, RIGHT)}
        self._noted = {side: ExpiringTimeKey(TIMESTAMP_COLUMN, budget) for side in (LEFT, RIGHT)}
        self.tables: dict[str, StateTable] = {**self._noted, VERSIONS: self._kept.table}
        self._watermark = -END_OF_TIME
        self.late_rows = 0

    @property
    def state_rows(self) -> int:
        return self._kept.rows + sum(bins.rows for bins in self._rows.values())

    @property
    def state_bytes(self) -> int:
        return self._kept.nbytes + sum(bins.nbytes for bins in self._rows.values())

    async def process(self, batches: Batches) -> Batches:
        parted = self._sides.part(batches)
        late, changes = self._split(parted[RIGHT])
        dropped, rows = self._split(parted[LEFT])
        self.late_rows += sum(batch.num_rows for batch in dropped)
        self._add(LEFT, rows)
        self._add(RIGHT, changes)
        if any(batch.num_rows for batch in late):
            # Their time has passed: they count from now on, for rows that have not left yet.
            await self._changed(late)
        return ()

    def _split(self, batches: Sequence[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """What comes behind the watermark, and the rest."""
        parts = [split_at(batch, TIMESTAMP_COLUMN, self._watermark) for batch in batches]
        return [late for late, _ in parts], [on_time for _, on_time in parts]

    def _add(self, side: str, rows: Sequence[pa.RecordBatch]) -> None:
        self._rows[side].add(rows)
        self._noted[side].add(rows)

    async def advance(self, watermark: int) -> Batches:
        self._watermark = watermark
        for table in self._noted.values():
            table.expire(watermark)
        taken = {side: dict(bins.take_until(watermark)) for side, bins in self._rows.items()}
        results = [await self._joined(left, right) for left, right in portions(taken[LEFT], taken[RIGHT])]
        self._kept.expire(watermark)
        return with_rows(results)

    async def _joined(self, left: Sequence[pa.RecordBatch], right: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The rows of some time, with the versions before it and those that came in it."""
        asked, changed = _hashes(left), _hashes(right)
        # Keys that both sides touch have all their versions from the changes.
        versions = [self._kept.fetch(np.setdiff1d(asked, changed, assume_unique=True))]
        if changed.size:
            made = await self._changed(right)
            versions.append(made.filter(pa.array(are_among(row_hashes(made), asked))))
        return await self._query.run(left, versions)

    async def _changed(self, changes: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Has changes count, and returns all versions of their keys: that before them and those that they make."""
        hashes = _hashes(changes)
        resolved = await self._versions.run([self._kept.fetch(hashes), *changes])
        versions = resolved.select(self._sides.right.names)
        is_valid = pc.and_(resolved.column(LAST_COLUMN), pc.greater(resolved.column(OP_COLUMN), 0))
        self._kept.replace(hashes, versions.filter(is_valid))
        return versions

    async def flush(self) -> Batches:
        return ()

    async def restore(self, name: str, rows: pa.Table) -> None:
        if name == VERSIONS:
            loaded(self._kept, rows, self._sides.right)
        else:
            self._rows[name].add(rows.to_batches())

    async def close(self) -> None:
        await self._versions.close()
        await self._query.close()


def _hashes(batches: Sequence[pa.RecordBatch]) -> Int64s:
    """The distinct hashes of rows."""
    return distinct(np.concatenate([np.zeros(0, np.int64), *(row_hashes(batch) for batch in batches)]))
