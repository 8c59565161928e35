"""Session windows: kept by key, joined with what touches them, and let out when the watermark has passed their end."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.program import HASH_COLUMN, WINDOW_END_COLUMN
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME
from penstock.worker.operators.partials import with_rows
from penstock.worker.operators.queries import Query, QueryOperator
from penstock.worker.state.bins import Bins
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.index import Int64s, are_among, distinct
from penstock.worker.state.keyed import KeyedState, loaded, unhashed
from penstock.worker.state.slabs import row_hashes
from penstock.worker.state.times import microseconds

_ENDS: Final = pa.schema([(HASH_COLUMN, pa.int64()), (WINDOW_END_COLUMN, pa.timestamp("us"))])
_SESSIONS: Final = "sessions"
_NEVER: Final = np.iinfo(np.int64).max
_BINS_A_GAP: Final = 16
_PORTION_HASHES: Final = 1 << 18  # what is finished in one run: sessions of so many keys


class SessionWindows(QueryOperator):
    """Sessions of keys.

    Which ones end is not searched for in all of them: hashes are filed by when their first session ends. A session that
    goes on leaves its hash where it is; when that time comes, the hash is looked up and filed again. So every hash with
    sessions is filed at or before the end of its first one, and about once a gap.
    """

    def __init__(self, gap_us: int, merge: Query, final: Query, budget: Budget = UNLIMITED) -> None:
        super().__init__(merge, final)
        self._merge = merge
        self._final = final
        self._sessions = KeyedState(merge.output, budget=budget)
        self._watermark = -END_OF_TIME
        self._ends = Bins(WINDOW_END_COLUMN, max(1, gap_us // _BINS_A_GAP))
        self.tables = {_SESSIONS: self._sessions.table}

    @property
    def state_rows(self) -> int:
        return self._sessions.rows

    @property
    def state_bytes(self) -> int:
        return self._sessions.nbytes + self._ends.nbytes

    async def process(self, batches: Batches) -> Batches:
        merged = await self._merge.run(batches)
        hashes = distinct(row_hashes(merged))
        kept = self._sessions.fetch(hashes)
        if kept.num_rows:
            merged = await self._merge.run([unhashed(kept), unhashed(merged)])
        # A session of only rows behind the watermark, from a source that was idle, is late.
        merged = self._on_time(merged, WINDOW_END_COLUMN, self._watermark + 1)
        self._sessions.replace(hashes, merged)
        ends = _first_ends(hashes, merged)
        self._file(hashes, ends, ends < _first_ends(hashes, kept))
        return ()

    async def advance(self, watermark: int) -> Batches:
        self._watermark = watermark
        due = [row_hashes(batch) for _, batches in self._ends.take_until(watermark + 1) for batch in batches]
        hashes = distinct(np.concatenate(due)) if due else np.empty(0, np.int64)
        portions = np.split(hashes, range(_PORTION_HASHES, hashes.size, _PORTION_HASHES))
        return with_rows([await self._ended(portion, watermark) for portion in portions])

    async def restore(self, name: str, rows: pa.Table) -> None:
        sessions = loaded(self._sessions, rows, self._merge.output)
        hashes = distinct(row_hashes(sessions))
        ends = _first_ends(hashes, sessions)
        self._file(hashes, ends, ends < _NEVER)

    async def _ended(self, hashes: Int64s, watermark: int) -> pa.RecordBatch:
        """The results of those sessions of some hashes that have ended."""
        rows = self._sessions.fetch(hashes)
        has_ended = microseconds(rows.column(WINDOW_END_COLUMN)) <= watermark
        results = await self._final.run([unhashed(rows.filter(pa.array(has_ended)))])
        changed = distinct(row_hashes(rows)[has_ended])
        others = rows.filter(pa.array(~has_ended))
        self._sessions.replace(changed, others.filter(pa.array(are_among(row_hashes(others), changed))))
        ends = _first_ends(hashes, others)
        self._file(hashes, ends, ends < _NEVER)
        return results

    def _file(self, hashes: Int64s, ends: Int64s, chosen: npt.NDArray[np.bool_]) -> None:
        columns = [pa.array(hashes[chosen]), pa.array(ends[chosen]).view(pa.timestamp("us"))]
        self._ends.add([pa.record_batch(columns, schema=_ENDS)])


def _first_ends(hashes: Int64s, rows: pa.RecordBatch) -> Int64s:
    """When the first session among rows ends of each hash, which are in order; never of one that has none."""
    ends = np.full(hashes.size, _NEVER)
    np.minimum.at(ends, np.searchsorted(hashes, row_hashes(rows)), microseconds(rows.column(WINDOW_END_COLUMN)))
    return ends
