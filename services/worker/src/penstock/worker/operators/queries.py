"""The queries of an operator with state: planned together, run on rows that are kept, closed together."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from penstock.common.program import StageQuery
from penstock.worker.batches import Batches
from penstock.worker.fragments import PlannedFragment, fragment_spec
from penstock.worker.operators.base import Planner
from penstock.worker.operators.sides import JoinQuery, Sides
from penstock.worker.state.batches import coalesced, empty
from penstock.worker.state.times import split_at


class Query:
    """A query over rows of one schema."""

    def __init__(self, fragment: PlannedFragment, output: pa.Schema) -> None:
        self.output = output
        self._fragment = fragment

    async def run(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The query's rows. No rows give none: an aggregate would make one of them."""
        if not any(batch.num_rows for batch in batches):
            return empty(self.output)
        (result,) = await self._fragment.run(list(coalesced(batches)))
        return pa.RecordBatch.from_arrays(result.columns, schema=self.output)

    async def close(self) -> None:
        """Frees what the query holds."""
        await self._fragment.close()


class Planning:
    """Plans the queries of one operator; if one cannot be planned, none stays open."""

    def __init__(self, engine: Planner) -> None:
        self._engine = engine
        self._planned: list[Query | JoinQuery] = []

    async def plan(self, query: StageQuery, rows: pa.Schema, output: pa.Schema) -> Query:
        """A query over `rows`. Its columns are those of `output`, which are not null where that says so, whatever the
        engine can prove: what merges rows gives rows of their own schema."""
        planned = pa.schema([field.with_nullable(True) for field in output])
        found = Query(await self._engine.plan(fragment_spec(query, rows, planned)), output)
        self._planned.append(found)
        return found

    async def plan_join(self, sql: str, sides: Sides, output: pa.Schema) -> JoinQuery:
        """A query over the rows of two sides, with columns as above."""
        found = await JoinQuery.planned(self._engine, sql, sides, output)
        self._planned.append(found)
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for query in self._planned:
                await query.close()


class QueryOperator:
    """What operators have in common that hold no changes back."""

    def __init__(self, *queries: Query) -> None:
        self._queries = queries
        self.late_rows = 0
        """How many rows, or partial results, were dropped because what they are of has left: a source was idle."""

    @property
    def holds_changes(self) -> bool:
        return False

    async def flush(self) -> Batches:
        return ()

    def _on_time(self, batch: pa.RecordBatch, column: str, moment: int) -> pa.RecordBatch:
        """The rows whose time is not before a moment; the others are late."""
        late, on_time = split_at(batch, column, moment)
        self.late_rows += late.num_rows
        return on_time

    async def close(self) -> None:
        for query in self._queries:
            await query.close()
