"""Tables in memory: sources of several partitions, cut into batches of one size, and a sink that keeps what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from reference.data import Dataset

from penstock.connectors.base import (
    NONE_HELD,
    TIMESTAMP_COLUMN,
    TIMESTAMP_TYPE,
    Options,
    Role,
    Sink,
    SinkKind,
    Source,
    SourceBatch,
    SourceKind,
    TableSpec,
)


@dataclass
class MemoryTables:
    """A connector whose sources are the tables of a dataset; all its sinks together are one list."""

    name: ClassVar[str] = "memory"
    description: ClassVar[str] = "For tests"
    source: ClassVar[SourceKind | None] = SourceKind(Options, {})
    sink: ClassVar[SinkKind | None] = SinkKind(Options, stages=True)

    data: Dataset
    batch_rows: int
    written: list[pa.RecordBatch] = field(default_factory=list)
    staged: dict[str, tuple[pa.RecordBatch, ...]] = field(default_factory=dict)
    """Rows that were staged, by what they are committed by; committed ones are gone."""
    batches_read: int = 0
    batches_given: int = 0
    pause_seconds: float = 0.0
    """Before each read."""

    @classmethod
    def of_nothing(cls) -> MemoryTables:
        """For jobs that read other tables."""
        return cls(Dataset((), (), ()), 1)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        """Partitions are dealt to subtasks by turns; how many there are does not depend on how many read them."""
        partitions = self.data.partitions(spec.table)
        dealt = range(len(partitions))[spec.subtask :: spec.parallelism]
        cut = {number: _cut(narrowed(partitions[number], spec.schema), self.batch_rows) for number in dealt}
        self.batches_read += sum(map(len, cut.values()))
        return _PartitionedSource(self, cut, spec)

    def open_sink(self, spec: TableSpec) -> Sink:
        return _StagingSink(self, spec) if spec.transactional else _KeepingSink(self.written)


def narrowed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns that are asked for, and of structs the fields that are; `_timestamp` is the time of the reading."""
    arrays = [_column(table, wanted) for wanted in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(table: pa.Table, wanted: pa.Field) -> Any:
    if wanted.name == TIMESTAMP_COLUMN:
        return pa.array(np.zeros(table.num_rows, np.int64), TIMESTAMP_TYPE)
    return _fields_of(table[wanted.name].combine_chunks(), wanted.type)


def _fields_of(array: Any, kind: pa.DataType) -> Any:
    if not pa.types.is_struct(kind) or array.type == kind:
        return array
    fields = [_fields_of(array.field(wanted.name), wanted.type) for wanted in kind]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())


def _cut(table: pa.Table, batch_rows: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=batch_rows)
    return [batch for batch in found if batch.num_rows]


class _PartitionedSource:
    """Gives the batches of its partitions by turns, those first that were never read, and none that is held."""

    def __init__(
        self, tables: MemoryTables, partitions: Mapping[int, Sequence[pa.RecordBatch]], spec: TableSpec
    ) -> None:
        self._tables = tables
        self._names = [str(number) for number in partitions]
        self._batches = [batches or [pa.RecordBatch.from_pylist([], spec.schema)] for batches in partitions.values()]
        restored = spec.restored or {}
        self._next = [int(restored.get(name, b"0")) for name in self._names]
        self._turns = [number for number, batches in enumerate(self._batches) if self._next[number] < len(batches)]
        self._ended = [number for number in range(len(self._names)) if number not in self._turns]

    @property
    def partitions(self) -> int:
        return len(self._names)

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        await asyncio.sleep(self._tables.pause_seconds)
        if self._ended:
            ended, self._ended = tuple(self._ended), []
            return SourceBatch(self._batches[0][0].slice(0, 0), ended=ended)
        if not self._turns:
            return None
        partition = next(number for number in self._turns if number not in held)
        self._turns.remove(partition)
        rows = self._batches[partition][self._next[partition]]
        self._next[partition] += 1
        self._tables.batches_given += 1
        is_last = self._next[partition] == len(self._batches[partition])
        if not is_last:
            self._turns.append(partition)
        return SourceBatch(rows, partition=partition, ended=(partition,) if is_last else ())

    def partition_name(self, partition: int) -> str:
        return self._names[partition]

    def positions(self) -> Mapping[str, bytes]:
        return {name: str(after).encode() for name, after in zip(self._names, self._next, strict=True)}

    async def close(self) -> None:
        return


class _KeepingSink:
    def __init__(self, written: list[pa.RecordBatch]) -> None:
        self._written = written

    async def write(self, batch: pa.RecordBatch) -> None:
        self._written.append(batch)

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return


class _StagingSink:
    """Rows that are committed are written, once."""

    def __init__(self, tables: MemoryTables, spec: TableSpec) -> None:
        self._tables = tables
        self._name = f"{spec.table} {spec.subtask}"
        self._rows: list[pa.RecordBatch] = []

    async def write(self, batch: pa.RecordBatch) -> None:
        self._rows.append(batch)

    async def flush(self) -> None:
        return

    async def recover(self, commits: Sequence[bytes]) -> None:
        for data in commits:
            await self.commit(data)

    async def stage(self, epoch: int) -> bytes:
        name = f"{self._name} {epoch}"
        self._tables.staged[name] = tuple(self._rows)
        self._rows = []
        return name.encode()

    async def commit(self, data: bytes) -> None:
        self._tables.written += self._tables.staged.pop(data.decode(), ())

    async def close(self) -> None:
        return
