"""Rows of a real PostgreSQL are found by key, in one query a batch, and its errors are told apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pyarrow as pa
import pytest
import pytest_asyncio

from penstock.common.embedded import EmbeddedPostgres
from penstock.common.errors import ExternalError, UserError
from penstock.common.testing_servers import temporary_database, temporary_postgres
from penstock.connectors.errors import UnsupportedType
from penstock.connectors.lookups import LookupSpec, LookupTable
from penstock.connectors.postgres import Postgres, PostgresLookupOptions

USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[EmbeddedPostgres]:
    async with temporary_postgres() as server:
        yield server


@pytest_asyncio.fixture
async def url(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with temporary_database(server) as url:
        yield url


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def opened(url: str, schema: pa.Schema = USERS, key_columns: int = 1, **options: str) -> LookupTable:
    return Postgres().open_lookup(LookupSpec("users", {"url": url, **options}, schema, key_columns))


async def found(table: LookupTable, **keys: Any) -> list[dict[str, Any]]:
    rows = await table.look_up(pa.record_batch(keys))
    return sorted(rows.to_pylist(), key=str)


async def test_rows_are_found_by_key(url: str) -> None:
    await execute(
        url,
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(10), other TEXT)",
        "INSERT INTO users SELECT n, CASE WHEN n % 2 = 0 THEN 'u' || n END FROM generate_series(1, 5000) n",
    )
    table = opened(url)
    ids = pa.array([2, 3, 9999, 5_000_000_000], pa.int64())
    assert await found(table, id=ids) == [{"id": 2, "name": "u2"}, {"id": 3, "name": None}]
    assert len(await found(table, id=pa.array(range(3000), pa.int64()))) == 2999
    assert await found(table, id=pa.array([9999], pa.int64())) == []
    await table.close()


async def test_a_question_is_one_query_by_index(url: str) -> None:
    await execute(
        url,
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT)",
        "INSERT INTO users SELECT n, 'u' FROM generate_series(1, 50000) n",
        "ANALYZE users",
    )
    table = opened(url)
    await found(table, id=pa.array([1], pa.int64()))  # connected
    connection = await asyncpg.connect(url)
    counts = "SELECT {} FROM pg_stat_user_tables WHERE relname = 'users'"
    try:
        for _ in range(3):
            assert len(await found(table, id=pa.array(range(1, 501), pa.int64()))) == 500
        await table.close()
        # Counts are handed in when a connection ends.
        while await connection.fetchval(counts.format("idx_scan")) < 4:
            await connection.fetch("SELECT pg_sleep(0.05)")
        assert await connection.fetchval(counts.format("seq_scan")) <= 1  # which the index was made by
    finally:
        await connection.close()


async def test_keys_of_several_columns_match_together(url: str) -> None:
    await execute(
        url,
        "CREATE SCHEMA shop",
        'CREATE TABLE shop."Prices" (shop TEXT, item INT, price NUMERIC(10, 2), PRIMARY KEY (shop, item))',
        "INSERT INTO shop.\"Prices\" VALUES ('a', 1, 1.5), ('a', 2, 2.5), ('b', 1, 3.25)",
    )
    schema = pa.schema(
        [
            pa.field("item", pa.int32(), nullable=False),
            pa.field("shop", pa.string(), nullable=False),
            ("price", pa.decimal128(10, 2)),
        ]
    )
    table = opened(url, schema, 2, table="shop.Prices")
    rows = await found(table, item=pa.array([1, 2, 1], pa.int32()), shop=["b", "b", "a"])
    assert rows == [
        {"item": 1, "shop": "a", "price": Decimal("1.50")},
        {"item": 1, "shop": "b", "price": Decimal("3.25")},
    ]
    await table.close()


async def test_a_uuid_is_found_by_its_text_and_other_text_finds_nothing(url: str) -> None:
    await execute(
        url,
        "CREATE TABLE users (id UUID PRIMARY KEY, name TEXT)",
        "INSERT INTO users VALUES ('6f9619ff-8b86-d011-b42d-00c04fc964ff', 'ann')",
    )
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("name", pa.string())])
    table = opened(url, schema)
    rows = await found(table, id=["no uuid", "6f9619ff-8b86-d011-b42d-00c04fc964ff"])
    assert rows == [{"id": "6f9619ff-8b86-d011-b42d-00c04fc964ff", "name": "ann"}]
    await table.close()


async def test_text_that_no_database_can_hold_finds_nothing(url: str) -> None:
    await execute(url, "CREATE TABLE users (id TEXT PRIMARY KEY)", "INSERT INTO users VALUES ('a'), (''), (E'x\ny')")
    table = opened(url, pa.schema([pa.field("id", pa.string(), nullable=False)]))
    assert await found(table, id=["a\0b", "a", "", "x\ny"]) == [{"id": ""}, {"id": "a"}, {"id": "x\ny"}]
    await table.close()


async def test_every_type_of_column_comes_back(url: str) -> None:
    await execute(
        url,
        """CREATE TABLE users (id TEXT PRIMARY KEY, b BOOLEAN, i INT, f REAL, d DOUBLE PRECISION, n NUMERIC, y BYTEA,
           day DATE, t TIME, at TIMESTAMP, tz TIMESTAMPTZ, span INTERVAL, j JSONB, tags TEXT[])""",
        """INSERT INTO users VALUES ('x', true, 7, 1.5, 2.5, 12.345, '\\x00ff', '2024-03-01', '10:00:01.5',
           '2024-03-01 10:00', '2024-03-01 10:00+02', '1 day 2 seconds', '{"a": [1]}', ARRAY['p', NULL])""",
    )
    kinds = {
        "b": pa.bool_(),
        "i": pa.int16(),
        "f": pa.float32(),
        "d": pa.float64(),
        "n": pa.decimal128(10, 2),
        "y": pa.binary(),
        "day": pa.date32(),
        "t": pa.time64("ns"),
        "at": pa.timestamp("us"),
        "tz": pa.timestamp("us", tz="UTC"),
        "span": pa.duration("us"),
        "j": pa.string(),
        "tags": pa.list_(pa.string()),
    }
    table = opened(url, pa.schema([pa.field("id", pa.string(), nullable=False), *kinds.items()]))
    [row] = await found(table, id=["x"])
    assert row == {
        "id": "x",
        "b": True,
        "i": 7,
        "f": 1.5,
        "d": 2.5,
        "n": Decimal("12.35"),
        "y": b"\x00\xff",
        "day": date(2024, 3, 1),
        "t": time(10, 0, 1, 500_000),
        "at": datetime(2024, 3, 1, 10),  # noqa: DTZ001 - without a zone
        "tz": datetime(2024, 3, 1, 8, tzinfo=UTC),
        "span": timedelta(days=1, seconds=2),
        "j": '{"a": [1]}',
        "tags": ["p", None],
    }
    await table.close()


@pytest.mark.parametrize(
    ("created", "reason"),
    [
        ("CREATE TABLE others (id BIGINT)", 'relation "users" does not exist'),
        ("CREATE TABLE users (id BIGINT)", "column t.name does not exist"),
        ("CREATE TABLE users (id TEXT, name TEXT)", "operator does not exist"),
    ],
)
async def test_a_table_that_does_not_fit_is_the_users_error(url: str, created: str, reason: str) -> None:
    await execute(url, created)
    table = opened(url)
    with pytest.raises(UserError, match=f"table users: {reason}"):
        await found(table, id=pa.array([1], pa.int64()))
    await table.close()


async def test_a_null_in_a_column_that_is_not_null_is_refused(url: str) -> None:
    await execute(url, "CREATE TABLE users (id BIGINT, name TEXT)", "INSERT INTO users VALUES (1, NULL)")
    schema = pa.schema([USERS.field("id"), pa.field("name", pa.string(), nullable=False)])
    table = opened(url, schema)
    with pytest.raises(UserError, match="column name is NOT NULL"):
        await found(table, id=pa.array([1], pa.int64()))
    await table.close()


async def test_a_server_that_is_not_there_is_an_external_error_without_the_password() -> None:
    table = opened("postgresql://me:s3cret@127.0.0.1:1/db")
    with pytest.raises(ExternalError, match="table users") as caught:
        await found(table, id=pa.array([1], pa.int64()))
    assert "s3cret" not in str(caught.value)
    await table.close()


async def test_connections_that_were_ended_are_made_anew(url: str) -> None:
    await execute(url, "CREATE TABLE users (id BIGINT, name TEXT)", "INSERT INTO users VALUES (1, 'ann')")
    table = opened(url)
    assert await found(table, id=pa.array([1], pa.int64())) == [{"id": 1, "name": "ann"}]
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    await execute(url, f"{others} AND datname = current_database()")
    async with asyncio.timeout(10):
        while True:
            try:
                rows = await found(table, id=pa.array([1], pa.int64()))
                break
            except ExternalError:
                await asyncio.sleep(0.05)
    assert rows == [{"id": 1, "name": "ann"}]
    await table.close()


def test_a_column_that_is_a_struct_is_refused_before_a_job_runs() -> None:
    options = PostgresLookupOptions(url="postgresql://x")
    with pytest.raises(UnsupportedType, match="column place"):
        Postgres().check_lookup(options, USERS, pa.schema([("place", pa.struct([("city", pa.string())]))]))
