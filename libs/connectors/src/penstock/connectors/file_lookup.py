"""A file as a lookup table: its rows in memory, found by key, and read again when the file has changed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pydantic import Field

from penstock.common.errors import UserError
from penstock.connectors.errors import BadRow, UnsupportedType
from penstock.connectors.files import errors_of
from penstock.connectors.formats.json import JsonDecoder
from penstock.connectors.key_hashes import Int64s, key_hashes, same_keys
from penstock.connectors.lookups import LookupOptions, LookupSpec, checked_rows

FileFormat: TypeAlias = Literal["json", "csv", "parquet"]
_ENDINGS: Final[Mapping[str, FileFormat]] = MappingProxyType({".csv": "csv", ".parquet": "parquet"})
_NULL: Final = ""


class FileLookupOptions(LookupOptions):
    """The options of a lookup table of `single_file`."""

    path: str = Field(min_length=1, description="the file")
    format: FileFormat | None = Field(default=None, description="else by the file's ending: .csv, .parquet, or json")

    @property
    def file_format(self) -> FileFormat:
        return self.format or _ENDINGS.get(os.path.splitext(self.path)[1].lower(), "json")


@dataclass(frozen=True, slots=True)
class _Version:
    """What tells two contents of a file apart."""

    changed_ns: int
    size: int
    inode: int


class _KeyedRows:
    """Rows with an index by the hashes of their keys."""

    def __init__(self, rows: pa.Table, key: pa.Schema) -> None:
        self._rows = rows
        self._keys = rows.select(key.names)
        hashes = key_hashes(self._keys)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        _, counts = np.unique(self._hashes, return_counts=True)
        self._most = int(counts.max(initial=0))
        """Of how many rows the hashes are equal, at most: one, unless two keys share a hash."""

    def find(self, keys: pa.RecordBatch) -> pa.Table:
        """The rows of some keys."""
        hashes = key_hashes(keys)
        first = np.searchsorted(self._hashes, hashes)
        found: list[Int64s] = [np.zeros(0, np.int64)]
        for step in range(self._most):
            places = np.minimum(first + step, self._hashes.size - 1)
            near = np.flatnonzero(self._hashes[places] == hashes)
            candidates = self._order[places[near]]
            equal = same_keys(keys.take(pa.array(near)), self._keys.take(pa.array(candidates)))
            found.append(candidates[equal])
        return self._rows.take(pa.array(np.unique(np.concatenate(found))))


class FileLookup:
    """The file is looked at again when the time to live has passed since the last look."""

    def __init__(
        self, spec: LookupSpec, options: FileLookupOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec = spec
        self._options = options
        self._clock = clock
        self._rows: _KeyedRows | None = None
        self._version: _Version | None = None
        self._looked_at = 0.0
        self._looking: asyncio.Task[_KeyedRows] | None = None
        self.loads = 0
        """How often the file was read."""

    async def look_up(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        rows = await self._current()
        found = await asyncio.to_thread(rows.find, keys)
        arrays = [column.combine_chunks() for column in found.columns]
        return pa.RecordBatch.from_arrays([_whole(array) for array in arrays], schema=self._spec.schema)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self._rows = None

    async def _current(self) -> _KeyedRows:
        """The rows; a look at the file goes on when who waits for it gives up, so that a long one comes to its end."""
        is_due = self._clock() - self._looked_at >= self._options.cache_ttl.total_seconds()
        if self._rows is not None and not is_due:
            return self._rows
        looking = self._looking = self._looking or asyncio.create_task(self._look(), name=f"read {self._spec.table}")
        try:
            return await asyncio.shield(looking)
        finally:
            if looking.done() and self._looking is looking:
                self._looking = None

    async def _look(self) -> _KeyedRows:
        now = self._clock()
        version = await asyncio.to_thread(_version_of, self._options.path)
        if self._rows is None or version != self._version:
            self._rows = await asyncio.to_thread(_load, self._spec, self._options)
            self._version = version
            self.loads += 1
        self._looked_at = now
        return self._rows


def check_file_columns(options: FileLookupOptions, schema: pa.Schema) -> None:
    """Raises UnsupportedType for a column that a file of the format cannot have."""
    if options.file_format == "json":
        JsonDecoder(schema).close()
    if options.file_format == "csv":
        for field in schema:
            if pa.types.is_nested(field.type) or pa.types.is_duration(field.type):
                raise UnsupportedType(f"column {field.name} has a type that a CSV file cannot hold")


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _version_of(path: str) -> _Version:
    with errors_of(path):
        found = os.stat(path)
    return _Version(found.st_mtime_ns, found.st_size, found.st_ino)


def _load(spec: LookupSpec, options: FileLookupOptions) -> _KeyedRows:
    read = {"json": _read_json, "csv": _read_csv, "parquet": _read_parquet}[options.file_format]
    with errors_of(options.path):
        table = read(spec, options.path)
    batch = checked_rows(spec.table, spec.schema, [_whole(column) for column in table.columns])
    rows = pa.Table.from_batches([batch])
    _refuse_duplicates(spec, options.path, rows)
    return _KeyedRows(rows, spec.key)


def _read_json(spec: LookupSpec, path: str) -> pa.Table:
    with open(path, "rb") as file:
        content = file.read()
    decoded = JsonDecoder(spec.schema).decode(content)
    for rejected in decoded.rejected[:1]:
        raise BadRow(spec.table, f"{path}:{rejected.line}", rejected.reason)
    return pa.Table.from_batches([decoded.rows])


def _read_csv(spec: LookupSpec, path: str) -> pa.Table:
    """A header names the columns; a field that is empty and not in quotes is null."""
    convert = pa.csv.ConvertOptions(
        column_types=spec.schema,
        include_columns=spec.schema.names,
        null_values=[_NULL],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        return pa.csv.read_csv(path, convert_options=convert)
    except (pa.ArrowInvalid, KeyError) as error:
        raise _unreadable(spec, path, error) from error


def _read_parquet(spec: LookupSpec, path: str) -> pa.Table:
    try:
        table = pa.parquet.read_table(path, columns=spec.schema.names)
        missing = [name for name in spec.schema.names if name not in table.column_names]
        if missing:
            raise KeyError(f"there is no column {missing[0]}")
        nullable = pa.schema([field.with_nullable(True) for field in spec.schema])
        return table.select(spec.schema.names).cast(nullable)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
        raise _unreadable(spec, path, error) from error


def _unreadable(spec: LookupSpec, path: str, error: Exception) -> UserError:
    reason = str(error.args[0] if error.args else error).partition("\n")[0]
    return UserError(f"table {spec.table}: {path} cannot be read: {reason[:1].lower()}{reason[1:]}")


def _refuse_duplicates(spec: LookupSpec, path: str, rows: pa.Table) -> None:
    keys = pl.from_arrow(rows.select(spec.key.names))
    assert isinstance(keys, pl.DataFrame)
    twice = keys.is_duplicated()
    if twice.any():
        first = int(pc.index(twice.to_arrow(), True).as_py())
        shown = ", ".join(f"{name} = {column[first].as_py()!r}" for name, column in _named(rows, spec.key))
        raise UserError(
            f"table {spec.table}: {path} has several rows with {shown}",
            hint="a PRIMARY KEY tells rows apart: remove them, or add a column to the key",
        )


def _named(rows: pa.Table, key: pa.Schema) -> list[tuple[str, pa.ChunkedArray]]:
    return [(name, rows.column(name)) for name in key.names]
