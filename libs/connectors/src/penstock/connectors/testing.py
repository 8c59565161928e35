"""What tests of connectors, and of what uses them, have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pyarrow as pa

from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE, LineParsers, Source, SourceBatch, TableSpec


class CollectingOutput:
    """An output port that keeps what it is sent."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    async def send(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)


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
