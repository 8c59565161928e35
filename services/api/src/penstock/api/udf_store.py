"""Python functions in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from penstock.api.http_errors import Conflict
from penstock.api.schemas import Column, Udf, UdfSignature
from penstock.api.statements import Statements
from penstock.common.errors import NotFound
from penstock.common.ids import UdfId
from penstock.common.program_proto import function_from_proto
from penstock.common.proto.compiler_pb2 import BuiltUdf

_UDFS = "SELECT id, name, source, built, created_at, updated_at FROM udfs"


@dataclass(frozen=True, slots=True)
class NewUdf:
    """A function that a user wants, built."""

    source: str
    built: BuiltUdf

    @property
    def name(self) -> str:
        return self.built.function.name.lower()


class UdfStore(Statements):
    """The functions that every query can call."""

    async def create(self, new: NewUdf, *, replace: bool) -> Udf:
        """Keep a function; in place of one of its name only with `replace`, which leaves its id."""
        encoded = new.built.SerializeToString(deterministic=True)
        update = "DO UPDATE SET source = $3, built = $4, updated_at = now()" if replace else "DO NOTHING"
        rows = await self._fetch(
            f"""
            INSERT INTO udfs (id, name, source, built) VALUES ($1, $2, $3, $4) ON CONFLICT (name) {update}
            RETURNING id, name, source, built, created_at, updated_at
            """,
            UdfId.new(),
            new.name,
            new.source,
            encoded,
        )
        if not rows:
            raise Conflict(f"there is a function {new.name} already", hint="replace it, or choose another name")
        return _udf(rows[0])

    async def udfs(self, *, after: UdfId | None, limit: int) -> list[Udf]:
        """The newest first, beginning after one of them."""
        sql = f"{_UDFS} WHERE $1::text IS NULL OR id < $1 ORDER BY id DESC LIMIT $2"
        return [_udf(row) for row in await self._fetch(sql, after, limit)]

    async def udf(self, udf: UdfId) -> Udf:
        rows = await self._fetch(f"{_UDFS} WHERE id = $1", udf)
        if not rows:
            raise NotFound(f"there is no function {udf}")
        return _udf(rows[0])

    async def delete(self, udf: UdfId) -> None:
        """Pipelines that call it go on with the version that they have."""
        if not await self._fetch("DELETE FROM udfs WHERE id = $1 RETURNING id", udf):
            raise NotFound(f"there is no function {udf}")

    async def built(self) -> Sequence[BuiltUdf]:
        """All functions, as the compiler takes them."""
        return [BuiltUdf.FromString(row["built"]) for row in await self._fetch("SELECT built FROM udfs ORDER BY id")]


def signature_of(built: BuiltUdf) -> UdfSignature:
    """How SQL calls a function."""
    signature = function_from_proto(built.function).signature
    return UdfSignature(
        name=signature.name.lower(),
        kind=signature.shape,
        style=signature.style,
        parameters=[
            Column(name=field.name, type=str(field.type), nullable=field.nullable) for field in signature.parameters
        ],
        returns=str(signature.returns),
        options=dict(built.options),
        hash=built.function.hash,
    )


def _udf(row: asyncpg.Record) -> Udf:
    signature = signature_of(BuiltUdf.FromString(row["built"]))
    times = {name: row[name] for name in ("created_at", "updated_at")}
    return Udf(id=row["id"], source=row["source"], **times, **dict(signature))
