"""Window functions over event times: all rows of a time wait until it is complete."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.partials import finished
from penstock.worker.operators.queries import Query, QueryOperator
from penstock.worker.state.bins import Bins
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.tables import ExpiringTimeKey

_BIN_US: Final = 1_000_000
_ROWS: Final = "rows"


class WindowFunctions(QueryOperator):
    """A query that needs all rows of an event time at once, and tells the times apart itself."""

    def __init__(self, query: Query, budget: Budget = UNLIMITED) -> None:
        super().__init__(query)
        self._query = query
        self._rows = Bins(TIMESTAMP_COLUMN, _BIN_US, budget)
        self._watermark = -END_OF_TIME
        self._table = ExpiringTimeKey(TIMESTAMP_COLUMN, budget)
        self.tables = {_ROWS: self._table}

    @property
    def state_rows(self) -> int:
        return self._rows.rows

    @property
    def state_bytes(self) -> int:
        return self._rows.nbytes

    async def process(self, batches: Batches) -> Batches:
        # What comes behind the watermark, from a source that was idle, is late: the rest of its time has left.
        timely = [self._on_time(batch, TIMESTAMP_COLUMN, self._watermark) for batch in batches]
        self._rows.add(timely)
        self._table.add(timely)
        return ()

    async def advance(self, watermark: int) -> Batches:
        self._watermark = watermark
        self._table.expire(watermark)
        return await finished(self._query, self._rows.take_until(watermark))

    async def restore(self, name: str, rows: pa.Table) -> None:
        self._rows.add(rows.to_batches())
