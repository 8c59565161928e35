"""The connector `redis`: values of a Redis or Valkey server, looked up by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final, Literal, cast

import numpy as np
import pyarrow as pa
import redis.asyncio
from pyarrow import types as arrow
from pydantic import Field
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from penstock.common.errors import ExternalError, InternalError, UserError
from penstock.common.redaction import redact_message
from penstock.connectors.base import Options, Role, Sink, SinkKind, Source, SourceKind, TableSpec
from penstock.connectors.errors import UnsupportedType, shorten
from penstock.connectors.formats.json import JsonDecoder
from penstock.connectors.lookups import LookupKind, LookupOptions, LookupSpec, LookupTable, checked_rows
from penstock.connectors.options import read_options

_LASTING: Final = (AuthenticationError, AuthorizationError, ResponseError)
_PASSING: Final = (ClusterDownError, TryAgainError)


class RedisLookupOptions(LookupOptions):
    """The options of a lookup table of `redis`."""

    url: str = Field(min_length=1, description="redis://:{{ PASSWORD }}@host:6379/0, rediss://… or unix://…")
    prefix: str = Field(default="", description="what stands before the key's text, such as users:")
    separator: str = Field(default=":", description="what stands between the columns of a key that has several")
    value: Literal["json", "hash"] = Field(default="json", description="text that is a JSON object, or a hash")


class Redis:
    """Values under a prefix."""

    name: ClassVar[str] = "redis"
    description: ClassVar[str] = "JSON values or hashes of a Redis or Valkey server, looked up by their key"
    source: ClassVar[SourceKind | None] = None
    sink: ClassVar[SinkKind | None] = None
    lookup: ClassVar[LookupKind] = LookupKind(RedisLookupOptions)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        raise InternalError("redis has no sources")

    def open_sink(self, spec: TableSpec) -> Sink:
        raise InternalError("redis has no sinks")

    def check_lookup(self, options: Options, key: pa.Schema, values: pa.Schema) -> None:
        for field in key:
            if not arrow.is_string(field.type) and not arrow.is_integer(field.type):
                raise UnsupportedType(f"column {field.name} cannot be a key of redis, which is TEXT or a whole number")
        if cast("RedisLookupOptions", options).value == "json":
            JsonDecoder(values).close()
            return
        for field in values:
            if arrow.is_nested(field.type) or arrow.is_duration(field.type):
                raise UnsupportedType(f"column {field.name} has a type that a hash cannot hold")

    def open_lookup(self, spec: LookupSpec) -> LookupTable:
        return RedisLookup(spec, read_options(self.name, RedisLookupOptions, spec.options))


class RedisLookup:
    """A pool of connections; a question is one MGET, or one HGETALL for each key, all sent together."""

    def __init__(self, spec: LookupSpec, options: RedisLookupOptions) -> None:
        self._spec = spec
        self._options = options
        self._client = redis.asyncio.Redis.from_url(options.url, retry=Retry(NoBackoff(), 0))

    async def look_up(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        names = self._names(keys)
        if self._options.value == "json":
            with _told(self._spec.table):
                values = cast("list[bytes | None]", await self._client.mget(names))
            found, columns = self._of_json(names, values)
        else:
            with _told(self._spec.table):
                pipeline = self._client.pipeline(transaction=False)
                for name in names:
                    pipeline.hgetall(name)
                hashes = await pipeline.execute()
            found, columns = self._of_hashes(names, hashes)
        own = keys.take(pa.array(found, pa.int64())).columns
        return checked_rows(self._spec.table, self._spec.schema, [*own, *columns])

    async def close(self) -> None:
        await self._client.aclose()

    def _names(self, keys: pa.RecordBatch) -> list[str]:
        columns = [column.cast(pa.string()).to_pylist() for column in keys.columns]
        return [self._options.prefix + self._options.separator.join(parts) for parts in zip(*columns, strict=True)]

    def _of_json(self, names: Sequence[str], values: Sequence[bytes | None]) -> tuple[list[int], list[pa.Array]]:
        """Which keys have a value, and the columns of those."""
        found = [place for place, value in enumerate(values) if value is not None]
        # A line end inside JSON is a space: in text it is written as \n.
        lines = [(values[place] or b"").replace(b"\n", b" ") for place in found]
        decoded = JsonDecoder(self._spec.values).decode(b"\n".join(lines))
        for rejected in decoded.rejected[:1]:
            raise self._bad(names[found[rejected.line - 1]], rejected.reason)
        if len(decoded.row_lines) < len(found):
            empty = np.setdiff1d(np.arange(1, len(found) + 1), decoded.row_lines)
            raise self._bad(names[found[int(empty[0]) - 1]], "it is empty")
        return found, decoded.rows.columns

    def _of_hashes(
        self, names: Sequence[str], hashes: Sequence[dict[bytes, bytes]]
    ) -> tuple[list[int], list[pa.Array]]:
        found = [place for place, fields in enumerate(hashes) if fields]
        columns = []
        for field in self._spec.values:
            values = [hashes[place].get(field.name.encode()) for place in found]
            columns.append(self._column(field, values, [names[place] for place in found]))
        return found, columns

    def _column(self, field: pa.Field, values: Sequence[bytes | None], names: Sequence[str]) -> pa.Array:
        raw = pa.array(values, pa.binary())
        if arrow.is_binary(field.type):
            return raw
        try:
            return raw.cast(pa.string()).cast(field.type)
        except pa.ArrowInvalid:
            for name, value in zip(names, raw, strict=True):
                try:
                    value.cast(pa.string()).cast(field.type)
                except pa.ArrowInvalid:
                    raise self._bad(name, f"{field.name} is no {field.type}") from None
            raise

    def _bad(self, name: str, reason: str) -> UserError:
        return UserError(f"table {self._spec.table}: the value of {shorten(name)!r} is no row: {reason}")


@contextmanager
def _told(table: str) -> Iterator[None]:
    """What the driver raises in here is an error of a table."""
    try:
        yield
    except (RedisError, OSError) as error:
        # What is refused while a connection is made comes as the cause of another error.
        is_lasting = any(
            isinstance(one, _LASTING) and not isinstance(one, _PASSING) for one in (error, error.__cause__)
        )
        told = UserError if is_lasting else ExternalError
        raise told(f"table {table}: {_message(error)}") from error


def _message(error: Exception) -> str:
    said = redact_message(str(error)).strip().rstrip(".") or type(error).__name__
    return said[:1].lower() + said[1:]
