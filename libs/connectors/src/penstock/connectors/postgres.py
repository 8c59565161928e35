"""The connector `postgres`: tables of a PostgreSQL database, looked up by key."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, Final

import asyncpg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow
from pydantic import Field

from penstock.common.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.common.redaction import redact_message
from penstock.connectors.base import Options, Role, Sink, SinkKind, Source, SourceKind, TableSpec
from penstock.connectors.errors import UnsupportedType
from penstock.connectors.lookups import LookupKind, LookupOptions, LookupSpec, LookupTable, checked_rows
from penstock.connectors.options import read_options

_TYPES: Final[Mapping[pa.DataType, str]] = MappingProxyType(
    {
        pa.bool_(): "boolean",
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.string(): "text",
        pa.binary(): "bytea",
        pa.date32(): "date",
        pa.time64("ns"): "time",
        pa.timestamp("us"): "timestamp",
        pa.timestamp("us", tz="UTC"): "timestamptz",
        pa.duration("us"): "interval",
    }
)
_UUID: Final = "uuid"
_IS_UUID: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
# Classes of errors that are the same whenever they are tried: of the query, its data, the login and the database.
_LASTING: Final = ("22", "28", "3D", "3F", "42")


class PostgresLookupOptions(LookupOptions):
    """The options of a lookup table of `postgres`."""

    url: str = Field(min_length=1, description="postgresql://user:{{ PASSWORD }}@host:5432/database")
    table: str | None = Field(
        default=None, min_length=1, description="its name there, perhaps with a schema; else that of the table here"
    )


class Postgres:
    """Tables of a database."""

    name: ClassVar[str] = "postgres"
    description: ClassVar[str] = "A table of a PostgreSQL database, looked up by its key"
    source: ClassVar[SourceKind | None] = None
    sink: ClassVar[SinkKind | None] = None
    lookup: ClassVar[LookupKind] = LookupKind(PostgresLookupOptions)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        raise InternalError("postgres has no sources")

    def open_sink(self, spec: TableSpec) -> Sink:
        raise InternalError("postgres has no sinks")

    def check_lookup(self, options: Options, key: pa.Schema, values: pa.Schema) -> None:
        for field in (*key, *values):
            _type_of(field)

    def open_lookup(self, spec: LookupSpec) -> LookupTable:
        return PostgresLookup(spec, read_options(self.name, PostgresLookupOptions, spec.options))


class PostgresLookup:
    """A pool of connections; a question is one query, with an array for each column of the key."""

    def __init__(self, spec: LookupSpec, options: PostgresLookupOptions) -> None:
        self._spec = spec
        self._options = options
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._query = ""
        self._uuids: frozenset[str] = frozenset()
        self._opening = asyncio.Lock()

    async def look_up(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        with _told(self._spec.table):
            async with self._opening:
                pool = self._pool or await self._open()
            possible = _possible(keys, self._uuids)
            records = await pool.fetch(self._query, *(column.to_pylist() for column in possible.columns))
            return self._rows(records)

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        pool = await asyncpg.create_pool(
            self._options.url, min_size=0, max_size=self._options.in_flight, server_settings={"timezone": "UTC"}
        )
        try:
            async with pool.acquire() as connection:
                self._uuids = await self._uuid_keys(connection)
        except BaseException:
            pool.terminate()
            raise
        self._query = _query(self._spec, self._table, self._uuids)
        self._pool = pool
        return pool

    async def _uuid_keys(self, connection: Any) -> frozenset[str]:
        """The columns of the key that are UUIDs there, and text here."""
        columns = ", ".join(map(_quoted, self._spec.key.names))
        statement = await connection.prepare(f"SELECT {columns} FROM {self._table} LIMIT 0")
        return frozenset(found.name for found in statement.get_attributes() if found.type.name == _UUID)

    @property
    def _table(self) -> str:
        return ".".join(map(_quoted, (self._options.table or self._spec.table).split(".")))

    def _rows(self, records: Sequence[asyncpg.Record]) -> pa.RecordBatch:
        columns: Iterable[Sequence[Any]] = zip(*records, strict=True) if records else [()] * len(self._spec.schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._spec.schema, strict=True)]
        return checked_rows(self._spec.table, self._spec.schema, arrays)


def _query(spec: LookupSpec, table: str, uuids: frozenset[str]) -> str:
    """One key is found by its index with ANY, several by a join with the arrays' rows."""
    values = ", ".join(f"t.{_quoted(field.name)}::{_type_of(field)}" for field in spec.schema)
    kinds = [f"{_UUID if field.name in uuids else _type_of(field)}[]" for field in spec.key]
    if len(kinds) == 1:
        return f"SELECT {values} FROM {table} AS t WHERE t.{_quoted(spec.key.names[0])} = ANY($1::{kinds[0]})"
    arrays = ", ".join(f"${number}::{kind}" for number, kind in enumerate(kinds, 1))
    names = [f"k{number}" for number in range(len(kinds))]
    equal = " AND ".join(f"t.{_quoted(column)} = k.{name}" for column, name in zip(spec.key.names, names, strict=True))
    return f"SELECT {values} FROM unnest({arrays}) AS k({', '.join(names)}) JOIN {table} AS t ON {equal}"


def _possible(keys: pa.RecordBatch, uuids: frozenset[str]) -> pa.RecordBatch:
    """The keys that may be there: no UUID equals other text, and no text there has a zero in it."""
    for name in keys.schema.names:
        column = keys.column(name)
        if arrow.is_string(column.type):
            is_possible = pc.match_substring_regex(column, _IS_UUID if name in uuids else r"^[^\x00]*$")
            keys = keys.filter(is_possible)
    return keys


def _type_of(field: pa.Field) -> str:
    """What PostgreSQL calls the type of a column."""
    kind = field.type
    if arrow.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if arrow.is_list(kind) and not arrow.is_nested(kind.value_type):
        return f"{_type_of(pa.field(field.name, kind.value_type))}[]"
    if kind not in _TYPES:
        raise UnsupportedType(
            f"column {field.name} has a type that postgres cannot look up",
            hint="declare it as JSON, and take it apart",
        )
    return _TYPES[kind]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _told(table: str) -> Iterator[None]:
    """What the driver raises in here is an error of a table."""
    try:
        yield
    except (PenstockError, TimeoutError):
        raise
    except asyncpg.PostgresError as error:
        message = f"table {table}: {_message(error)}"
        if (error.sqlstate or "").startswith(_LASTING):
            raise UserError(message, hint="columns and key must be those of the table in the database") from error
        raise ExternalError(message) from error
    except (ValueError, pa.ArrowInvalid) as error:
        raise UserError(f"table {table}: {_message(error)}") from error
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise ExternalError(f"table {table}: {_message(error)}") from error


def _message(error: Exception) -> str:
    said = re.sub(r"\s+", " ", redact_message(str(error))).strip().rstrip(".") or type(error).__name__
    return said[:1].lower() + said[1:]
