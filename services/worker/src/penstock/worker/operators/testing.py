"""What tests of operators share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.common.program import Operator, OperatorKey, OperatorKind
from penstock.spark import FragmentSpec, Observed
from penstock.worker.batches import Batches
from penstock.worker.fragments import PlannedFragment
from penstock.worker.operators.base import ChainOperator, Planner
from penstock.worker.operators.opening import open_operator
from penstock.worker.state.lifetimes import Clock, system_clock


class SharedFragment:
    """A fragment that stays planned when an operator closes it."""

    def __init__(self, fragment: PlannedFragment) -> None:
        self._fragment = fragment
        self.runs = 0

    async def run(self, *inputs: Sequence[pa.RecordBatch]) -> Batches:
        self.runs += 1
        return await self._fragment.run(*inputs)

    async def observe(self, batches: Sequence[pa.RecordBatch], watermark: int | None) -> Observed:
        return await self._fragment.observe(batches, watermark)

    async def close(self) -> None: ...

    async def end(self) -> None:
        """Closes it for all."""
        await self._fragment.close()


class SharedPlanner:
    """Plans each fragment once, however often operators are opened."""

    def __init__(self, engine: Planner) -> None:
        self._engine = engine
        self._planned: list[tuple[FragmentSpec, SharedFragment]] = []

    async def plan(self, spec: FragmentSpec) -> PlannedFragment:
        for known, fragment in self._planned:
            if known == spec:
                return fragment
        fragment = SharedFragment(await self._engine.plan(spec))
        self._planned.append((spec, fragment))
        return fragment

    async def close(self) -> None:
        """Closes all fragments."""
        for _, fragment in self._planned:
            await fragment.end()


async def opened(
    kind: OperatorKind, rows: pa.Schema, output: pa.Schema, engine: Planner, *, updating_ttl_ms: int = 0,
    clock: Clock = system_clock,
) -> ChainOperator:  # fmt: skip
    """An operator of a kind."""
    operator = Operator(OperatorKey("tested"), "tested", kind, output)
    return await open_operator(operator, rows, engine, updating_ttl_ms=updating_ttl_ms, clock=clock)


def batch_of(schema: pa.Schema, rows: Iterable[Sequence[object]]) -> pa.RecordBatch:
    """Rows as a batch; event times are microseconds."""
    columns = zip(*rows, strict=True) if (rows := list(rows)) else [()] * len(schema)
    arrays = [
        pa.array(column, pa.int64()).view(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(column, field.type)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """The rows of batches, with event times in microseconds."""
    return [
        row
        for batch in batches
        for row in zip(
            *(
                (column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
                for column in batch.columns
            ),
            strict=True,
        )
    ]
