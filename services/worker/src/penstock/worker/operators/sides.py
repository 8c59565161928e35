"""The two sides of a join: whose rows are whose, and the query over both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import LEFT, RIGHT
from penstock.spark import FragmentSpec
from penstock.worker.batches import Batches
from penstock.worker.fragments import PlannedFragment
from penstock.worker.operators.base import Planner
from penstock.worker.state.batches import coalesced, empty

# What is joined in one run: several event times together, but not without bound.
_PORTION_ROWS: Final = 1 << 18

Binned: TypeAlias = Mapping[int, list[pa.RecordBatch]]
"""Rows by the beginning of their bin."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The schemas of both sides, whose columns are called differently."""

    left: pa.Schema
    right: pa.Schema

    def part(self, batches: Batches) -> Mapping[str, list[pa.RecordBatch]]:
        """Rows that came, by their side."""
        parted: dict[str, list[pa.RecordBatch]] = {LEFT: [], RIGHT: []}
        for batch in batches:
            if batch.num_rows:
                parted[self._side_of(batch)].append(batch)
        return parted

    def _side_of(self, batch: pa.RecordBatch) -> str:
        names = batch.schema.names
        if names == self.left.names:
            return LEFT
        if names == self.right.names:
            return RIGHT
        raise InternalError(f"rows of {', '.join(names)} are of no side of a join")


class JoinQuery:
    """A query over `left` and `right`."""

    def __init__(self, fragment: PlannedFragment, output: pa.Schema) -> None:
        self.output = output
        self._fragment = fragment

    @classmethod
    async def planned(cls, engine: Planner, sql: str, sides: Sides, output: pa.Schema) -> JoinQuery:
        """The query, with the columns of `output`: not null where that says so, whatever the engine can prove."""
        planned = pa.schema([field.with_nullable(True) for field in output])
        return cls(await engine.plan(FragmentSpec(sql, {LEFT: sides.left, RIGHT: sides.right}, planned)), output)

    async def run(self, left: Sequence[pa.RecordBatch], right: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The query's rows; no rows on both sides give none."""
        if not any(batch.num_rows for batch in (*left, *right)):
            return empty(self.output)
        (result,) = await self._fragment.run(list(coalesced(left)), list(coalesced(right)))
        return pa.RecordBatch.from_arrays(result.columns, schema=self.output)

    async def close(self) -> None:
        """Frees what the query holds."""
        await self._fragment.close()


def portions(left: Binned, right: Binned) -> Iterator[tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]]]:
    """The rows of both sides in the order of their times, as many together as one run takes; no time is cut."""
    portion: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
    size = 0
    for start in sorted(left.keys() | right.keys()):
        both = left.get(start, []), right.get(start, [])
        rows = sum(batch.num_rows for side in both for batch in side)
        if size and size + rows > _PORTION_ROWS:
            yield portion
            portion, size = ([], []), 0
        portion[0].extend(both[0])
        portion[1].extend(both[1])
        size += rows
    if size:
        yield portion
