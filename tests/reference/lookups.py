"""The lookup tables of the queries, in memory: rows that are the same in every run, found by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import pyarrow as pa

from penstock.connectors.base import Options, Role, Sink, SinkKind, Source, SourceKind, TableSpec
from penstock.connectors.lookups import LookupKind, LookupSpec, LookupTable
from penstock.connectors.postgres import PostgresLookupOptions
from penstock.connectors.testing import MemoryLookup

PEOPLE: Final = pa.table(
    {
        "name": ["ann", "bob", "cy", "eve", "élan", "", "nobody"],
        "age": pa.array([41, 17, None, 33, 65, 50, 99], pa.int32()),
        "city": ["Oslo", "Rome", "Rome", None, "Oslo", "Bern", "Bern"],
    },
    schema=pa.schema([pa.field("name", pa.string(), nullable=False), ("age", pa.int32()), ("city", pa.string())]),
)
TARIFFS: Final = pa.table(
    {
        "kind": ["view", "view", "view", "click", "buy"],
        "zone": pa.array([0, 1, 2, 1, 3], pa.int32()),
        "fee": pa.array([1, 2, 3, None, 5], pa.int64()),
    },
    schema=pa.schema(
        [
            pa.field("kind", pa.string(), nullable=False),
            pa.field("zone", pa.int32(), nullable=False),
            ("fee", pa.int64()),
        ]
    ),
)
LOOKUP_TABLES: Final = {"people": PEOPLE, "tariffs": TARIFFS}


def declared(place_of: Callable[[str], str]) -> str:
    """The tables, each with the options that tell where it is. They are asked for so few keys at a time, and have so
    little memory, that answers are asked for and forgotten again and again."""
    return f"""
    CREATE TABLE people (name TEXT PRIMARY KEY, age INT, city TEXT)
      WITH ({place_of("people")}, type = 'lookup', batch_keys = 2, cache_size = '1KiB');

    CREATE TABLE tariffs (fee BIGINT, kind TEXT, zone INT, PRIMARY KEY (kind, zone))
      WITH ({place_of("tariffs")}, type = 'lookup', batch_keys = 3, in_flight = 1);
    """


DECLARED: Final = declared(lambda _table: "connector = 'postgres', url = 'x'")
"""Of `MemoryLookups`, which takes the place of that connector."""


class MemoryLookups:
    """A connector whose lookup tables these are."""

    name: ClassVar[str] = "memory"
    description: ClassVar[str] = "For tests"
    source: ClassVar[SourceKind | None] = None
    sink: ClassVar[SinkKind | None] = None
    lookup: ClassVar[LookupKind] = LookupKind(PostgresLookupOptions)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        raise NotImplementedError

    def open_sink(self, spec: TableSpec) -> Sink:
        raise NotImplementedError

    def check_lookup(self, options: Options, key: pa.Schema, values: pa.Schema) -> None: ...

    def open_lookup(self, spec: LookupSpec) -> LookupTable:
        rows = LOOKUP_TABLES[spec.table].select(spec.schema.names)
        return MemoryLookup(rows.cast(spec.schema), spec.key_columns)
