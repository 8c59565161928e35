"""What tests of connectors, and of what uses them, have in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pyarrow as pa

from penstock.common.errors import ExternalError
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE, LineParsers, Source, SourceBatch, TableSpec


class CollectingOutput:
    """An output port that keeps what it is sent."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    async def send(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)


class MemoryLookup:
    """A lookup table in memory, which notes what it is asked; its first answers can fail, or wait for a gate."""

    def __init__(
        self, rows: pa.Table, key_columns: int = 1, *, failures: int = 0, gate: asyncio.Event | None = None
    ) -> None:
        self.rows = rows
        self.asked: list[list[tuple[object, ...]]] = []
        """The keys of each question."""
        self.most_at_once = 0
        self.closed = False
        self._names = rows.column_names[:key_columns]
        self._failures = failures
        self._gate = gate
        self._under_way = 0

    async def look_up(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        wanted = [tuple(row.values()) for row in keys.to_pylist()]
        self.asked.append(wanted)
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            await asyncio.sleep(0)
            if self._gate is not None:
                await self._gate.wait()
            if self._failures:
                self._failures -= 1
                raise ExternalError("the table is not to be reached")
        finally:
            self._under_way -= 1
        own = [tuple(row.values()) for row in self.rows.select(self._names).to_pylist()]
        places = [place for place, key in enumerate(own) if key in set(wanted)]
        found = self.rows.take(pa.array(places[::-1], pa.int64())).combine_chunks()
        return pa.RecordBatch.from_arrays([_chunk(column) for column in found.columns], schema=self.rows.schema)

    async def close(self) -> None:
        self.closed = True


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    chunk = column.combine_chunks()
    return chunk.combine_chunks() if isinstance(chunk, pa.ChunkedArray) else chunk


def table_spec(
    columns: pa.Schema,
    options: Mapping[str, str] | None = None,
    *,
    metadata: Mapping[str, str] | None = None,
    subtask: int = 0,
    parallelism: int = 1,
    batch_rows: int = 1000,
    output: CollectingOutput | None = None,
    lines: LineParsers | None = None,
    job: str = "job",
    transactional: bool = False,
    restored: Mapping[str, bytes] | None = None,
) -> TableSpec:
    """The spec of a table called `t`; `_timestamp` is added to its columns."""
    return TableSpec(
        table="t",
        options=options or {},
        schema=columns.append(pa.field(TIMESTAMP_COLUMN, TIMESTAMP_TYPE, nullable=False)),
        metadata=metadata or {},
        subtask=subtask,
        parallelism=parallelism,
        batch_rows=batch_rows,
        output=output or CollectingOutput(),
        job=job,
        transactional=transactional,
        restored=restored,
        lines=lines,
    )


async def batches_of(source: Source) -> AsyncIterator[SourceBatch]:
    """All that a source has, which is closed then."""
    try:
        while (batch := await source.read()) is not None:
            yield batch
    finally:
        await source.close()


async def rows_of(source: Source) -> pa.Table:
    """All rows of a source that has at least one batch."""
    return pa.Table.from_batches([batch.rows async for batch in batches_of(source)])
