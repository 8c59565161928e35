"""Small operators with state, for tests of what moves rows and watermarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import Operator, OperatorKey, StageQuery, UpdatingAggregate, WindowFunction
from penstock.worker.batches import Batches
from penstock.worker.operators.base import END_OF_TIME, ChainOperator, Planner
from penstock.worker.signals import START_OF_TIME
from penstock.worker.state.tables import StateTable


def numbers_of(batches: Batches) -> list[int]:
    """The first column."""
    return [number for batch in batches for number in batch.column(0).to_pylist()]


class Waiting:
    """Keeps rows until the watermark has reached their event times, and lets them out in the order of these."""

    holds_changes = False
    state_bytes = 0
    late_rows = 0

    tables: Mapping[str, StateTable] = MappingProxyType({})

    def __init__(self, schema: pa.Schema) -> None:
        self._kept = schema.empty_table()
        self.watermarks = [START_OF_TIME]
        self.overtaken = 0
        """Rows that came behind their watermark."""

    @property
    def state_rows(self) -> int:
        return int(self._kept.num_rows)

    async def process(self, batches: Batches) -> Batches:
        new = pa.Table.from_batches(batches)
        self.overtaken += sum(at <= self.watermarks[-1] for at in _times(new))
        self._kept = pa.concat_tables([self._kept, new])
        return ()

    async def advance(self, watermark: int) -> Batches:
        self.watermarks.append(watermark)
        due = pa.array([at <= watermark for at in _times(self._kept)], pa.bool_())
        out = self._kept.filter(due).sort_by(self._kept.column_names[-1])
        self._kept = self._kept.filter(pa.array([not one.as_py() for one in due], pa.bool_()))
        return tuple(out.combine_chunks().to_batches())

    async def flush(self) -> Batches:
        return ()

    async def restore(self, name: str, rows: pa.Table) -> None: ...

    async def close(self) -> None: ...


class Latest:
    """Keeps the last row of each number until it is flushed."""

    state_rows = 0
    state_bytes = 0
    late_rows = 0

    tables: Mapping[str, StateTable] = MappingProxyType({})

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._held: dict[int, pa.RecordBatch] = {}
        self.flushes: Counter[int] = Counter()

    @property
    def holds_changes(self) -> bool:
        return bool(self._held)

    async def process(self, batches: Batches) -> Batches:
        for batch in batches:
            for index, number in enumerate(batch.column(0).to_pylist()):
                self._held[number] = batch.slice(index, 1)
        return ()

    async def advance(self, watermark: int) -> Batches:
        assert watermark == END_OF_TIME or not self._held, "a watermark has overtaken changes"
        return ()

    async def flush(self) -> Batches:
        held, self._held = self._held, {}
        self.flushes.update(held.keys())
        return (pa.concat_batches(held.values()),)

    async def restore(self, name: str, rows: pa.Table) -> None: ...

    async def close(self) -> None: ...


class Operators:
    """Opens these, and keeps them to be looked at."""

    def __init__(self) -> None:
        self.opened: list[Waiting | Latest] = []

    @property
    def waiting(self) -> list[Waiting]:
        return [one for one in self.opened if isinstance(one, Waiting)]

    async def open(self, operator: Operator, schema: pa.Schema, planner: Planner) -> ChainOperator:
        opened: Waiting | Latest
        match operator.kind:
            case WindowFunction():
                opened = Waiting(schema)
            case UpdatingAggregate():
                opened = Latest(schema)
            case _:
                raise InternalError(f"there is nothing for {operator.key} here")
        self.opened.append(opened)
        return opened


def waiting(schema: pa.Schema) -> Operator:
    return Operator(OperatorKey("waiting"), "waiting", WindowFunction(""), schema)


def latest(schema: pa.Schema) -> Operator:
    return Operator(OperatorKey("latest"), "latest", UpdatingAggregate(StageQuery(), StageQuery()), schema)


def _times(rows: pa.Table) -> list[int]:
    times: list[int] = rows.column(rows.num_columns - 1).cast(pa.int64()).to_pylist()
    return times
