"""Lookup tables: tables that are asked for the rows of some keys, and never read as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import pyarrow as pa
from pydantic import Field, field_validator

from penstock.common.errors import UserError
from penstock.common.quantities import Duration, Size
from penstock.connectors.base import Connector, Options


class LookupOptions(Options):
    """What every lookup table takes."""

    cache_ttl: Duration = Field(
        default=timedelta(minutes=1), description="how long an answer counts, also that there is no row; 0s: ask always"
    )
    cache_size: Size = Field(default=64 << 20, description="bytes of answers that each subtask keeps")
    batch_keys: Annotated[int, Field(gt=0, le=100_000)] = Field(default=1000, description="keys of one question")
    in_flight: Annotated[int, Field(gt=0, le=100)] = Field(default=4, description="questions of a subtask at a time")
    retries: Annotated[int, Field(ge=0, le=100)] = Field(default=5, description="of a question that fails")
    timeout: Duration = Field(default=timedelta(seconds=10), description="of one attempt")

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, timeout: timedelta) -> timedelta:
        if not timeout:
            raise ValueError("an answer takes some time")
        return timeout


class LookupTable(Protocol):
    """A table that is asked by key."""

    async def look_up(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of some keys, in any order, with the columns of the table's `LookupSpec`.

        Keys are distinct and have no nulls; one that the table has not has no row. Several calls may be under way at
        once, and a call may be cancelled. Raises ExternalError where trying again may help, else UserError."""
        ...

    async def close(self) -> None:
        """Gives back what the table holds."""
        ...


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """What a subtask opens."""

    table: str
    options: Mapping[str, str]
    """As the user gave them, without `connector` and `type`, secrets filled in."""
    schema: pa.Schema
    """The columns to give, perhaps fewer than the table has: its key, then others."""
    key_columns: int
    """How many of them are the key."""

    @property
    def key(self) -> pa.Schema:
        return pa.schema(list(self.schema)[: self.key_columns])

    @property
    def values(self) -> pa.Schema:
        return pa.schema(list(self.schema)[self.key_columns :])


@dataclass(frozen=True, slots=True)
class LookupKind:
    """What a connector says of its lookup tables."""

    options: type[LookupOptions]
    is_local: bool = False
    """Its tables are in memory, and look for changes themselves: answers need not be kept beside them."""


@runtime_checkable
class LookupConnector(Connector, Protocol):
    """A connector that has lookup tables."""

    lookup: ClassVar[LookupKind]

    def check_lookup(self, options: Options, key: pa.Schema, values: pa.Schema) -> None:
        """Raises UnsupportedType for a column that such a table cannot have."""
        ...

    def open_lookup(self, spec: LookupSpec) -> LookupTable:
        """A lookup table; opens nothing yet: the first question does."""
        ...


def checked_rows(table: str, schema: pa.Schema, arrays: list[pa.Array]) -> pa.RecordBatch:
    """Rows of a table whose columns have no nulls where it says so."""
    for field, array in zip(schema, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise UserError(f"table {table}: column {field.name} is NOT NULL, but a row that was found has none")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
