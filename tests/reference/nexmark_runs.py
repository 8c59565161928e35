"""Nexmark's queries over events that are out of order: what a job gives of them, and what Spark does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.csv
from nexmark.events import SIDE_INPUT, event_batches, write_events
from nexmark.queries import NexmarkQuery, file_tables, generator_tables, side_input_table
from reference.memory import MemoryTables
from reference.runs import compiled

from penstock.common.program import Program
from penstock.connectors.base import (
    NONE_HELD,
    Connector,
    Options,
    Role,
    Sink,
    SinkKind,
    Source,
    SourceBatch,
    SourceKind,
    TableSpec,
)
from penstock.connectors.filesystem import Filesystem
from penstock.connectors.nexmark import Nexmark, NexmarkOptions
from penstock.connectors.nexmark_events import COLUMNS
from penstock.connectors.shares import Share
from penstock.connectors.single_file import SingleFile
from penstock.spark import Engine, FragmentSpec

EVENTS: Final = 20_000
OPTIONS: Final = {"events": str(EVENTS), "inter_event_delay": "5ms", "max_delay": "3500ms"}
"""A hundred seconds: ten windows of most queries, and auctions that last some seconds."""
PARTS: Final = 3
"""The files of each kind."""


def write_files(folder: Path) -> None:
    write_events(folder, NexmarkOptions.model_validate(OPTIONS), PARTS)


@cache
def events_of(kind: str) -> pa.Table:
    """All events of a kind."""
    return pa.Table.from_batches(event_batches(kind, NexmarkOptions.model_validate(OPTIONS), Share(0, 1)))


async def program_of(engine: Engine, query: NexmarkQuery, files: Path, *, from_files: bool) -> Program:
    """A query whose results are shown, over the generator or over files."""
    tables = file_tables(files) if from_files else generator_tables(OPTIONS)
    if query.reads_side_input:
        tables += side_input_table(files / SIDE_INPUT)
    return await compiled(engine, query.select_sql, tables)


async def answer_of(query: NexmarkQuery, engine: Engine, files: Path) -> pa.Table:
    """What Spark gives of all events at once."""
    inputs = {kind: events_of(kind) for kind in COLUMNS.names if kind in query.batch_sql}
    if query.reads_side_input:
        inputs["side_input"] = pa.csv.read_csv(files / SIDE_INPUT)
    spec = FragmentSpec(query.batch_sql, {name: rows.schema for name, rows in inputs.items()})
    async with await engine.plan(spec) as fragment:
        given = [rows.combine_chunks().to_batches() for rows in inputs.values()]
        return pa.Table.from_batches(await fragment.run(*given))


def connectors_of(tables: MemoryTables) -> Mapping[str, Connector]:
    """The connectors that the queries name; reads are counted, and what is shown is kept."""
    return {
        "nexmark": _Counted(Nexmark(), tables),
        "filesystem": _Counted(Filesystem(), tables),
        "single_file": SingleFile(),
        "preview": tables,
    }


@dataclass(frozen=True)
class _Counted:
    """A connector whose sources say how many batches they have given."""

    name: ClassVar[str] = "counted"
    description: ClassVar[str] = "For tests"
    source: ClassVar[SourceKind | None] = SourceKind(Options, {})
    sink: ClassVar[SinkKind | None] = None

    counted: Connector
    tables: MemoryTables

    def schema(self, options: Options) -> pa.Schema | None:
        return self.counted.schema(options)

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return self.counted.max_parallelism(role, options)

    def open_source(self, spec: TableSpec) -> Source:
        return _CountedSource(self.counted.open_source(spec), self.tables)

    def open_sink(self, spec: TableSpec) -> Sink:
        raise NotImplementedError


class _CountedSource:
    def __init__(self, source: Source, tables: MemoryTables) -> None:
        self._source = source
        self._tables = tables

    @property
    def partitions(self) -> int:
        return self._source.partitions

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        batch = await self._source.read(held)
        self._tables.batches_given += batch is not None
        return batch

    def partition_name(self, partition: int) -> str:
        return self._source.partition_name(partition)

    def positions(self) -> Mapping[str, bytes]:
        return self._source.positions()

    async def close(self) -> None:
        await self._source.close()
