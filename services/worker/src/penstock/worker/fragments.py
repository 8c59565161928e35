"""What the worker needs of a fragment that the engine has planned, and what it plans for a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from penstock.common.program import INPUT, Stage, StageQuery
from penstock.spark import AggregationStage, FragmentSpec, Observed, StageName
from penstock.worker.batches import Batches

_STAGES: Final = {Stage.PARTIAL: StageName.PARTIAL, Stage.MERGE: StageName.MERGE, Stage.FINAL: StageName.FINAL}


class PlannedFragment(Protocol):
    """A query that runs on batches."""

    async def run(self, *inputs: Sequence[pa.RecordBatch]) -> Batches:
        """Runs the query on a batch of each input; returns one batch per partition."""
        ...

    async def observe(self, batches: Sequence[pa.RecordBatch], watermark: int | None) -> Observed:
        """Runs a query that observes event times on rows of one partition of a source, from a watermark on."""
        ...

    async def close(self) -> None:
        """Frees what the fragment holds."""
        ...


def fragment_spec(
    query: StageQuery,
    schema: pa.Schema,
    output: pa.Schema | None = None,
    partition_by: tuple[str, ...] = (),
    partitions: int = 1,
) -> FragmentSpec:
    """What to plan for a query over rows of a schema."""
    return FragmentSpec(
        query.before,
        {INPUT: schema},
        output,
        partition_by,
        partitions,
        aggregation=_stage(query),
        after=query.after,
    )


def _stage(query: StageQuery) -> AggregationStage | None:
    if query.aggregation is None or query.stage is None:
        return None
    return AggregationStage(query.aggregation.sql, query.aggregation.input, _STAGES[query.stage])
