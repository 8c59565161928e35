"""Values of a real server are found by key, as JSON and as hashes, and its errors are told apart."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio
import redis.asyncio

from penstock.common.errors import ExternalError, UserError
from penstock.connectors.errors import UnsupportedType
from penstock.connectors.lookups import LookupSpec, LookupTable
from penstock.connectors.redis import Redis, RedisLookupOptions
from penstock.connectors.testing_servers import ValkeyServer, temporary_valkey

USERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("cost", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("ok", pa.bool_()),
    ]
)
ANN: dict[str, Any] = {"name": "ann", "score": 1.5, "cost": "12.50", "at": "2024-03-01T10:00:00", "ok": True}
ANN_ROW = {
    "id": 1,
    "name": "ann",
    "score": 1.5,
    "cost": Decimal("12.50"),
    "at": datetime(2024, 3, 1, 10),  # noqa: DTZ001 - without a zone
    "ok": True,
}
NOBODY = dict.fromkeys(USERS.names)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[ValkeyServer]:
    async with temporary_valkey() as server:
        yield server


@pytest_asyncio.fixture
async def client(server: ValkeyServer) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(server.url)
    await client.flushall()
    yield client
    await client.aclose()


def opened(server: ValkeyServer, schema: pa.Schema = USERS, key_columns: int = 1, **options: str) -> LookupTable:
    options = {"url": server.url, "prefix": "users:", **options}
    return Redis().open_lookup(LookupSpec("users", options, schema, key_columns))


async def found(table: LookupTable, *ids: int) -> list[dict[str, Any]]:
    try:
        rows = await table.look_up(pa.record_batch({"id": pa.array(ids, pa.int64())}))
    finally:
        await table.close()
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


async def test_json_values_are_found_by_prefix_and_key(server: ValkeyServer, client: redis.asyncio.Redis) -> None:
    await client.mset(
        {"users:1": json.dumps(ANN, indent=2), "users:3": "{}", "users:-4": '{"name": "é"}', "2": json.dumps(ANN)}
    )
    rows = await found(opened(server), 3, 1, 2, -4)
    assert rows == [NOBODY | {"id": -4, "name": "é"}, ANN_ROW, NOBODY | {"id": 3}]


async def test_hashes_are_found_by_prefix_and_key(server: ValkeyServer, client: redis.asyncio.Redis) -> None:
    fields: dict[Any, Any] = ANN | {"ok": "true", "more": "x"}
    await client.hset("users:1", mapping=fields)
    await client.hset("users:3", mapping={"other": "x"})
    rows = await found(opened(server, value="hash"), 1, 2, 3)
    assert rows == [ANN_ROW, NOBODY | {"id": 3}]


async def test_keys_of_several_columns_are_joined_by_the_separator(
    server: ValkeyServer, client: redis.asyncio.Redis
) -> None:
    await client.mset({"p/a/1": '{"price": 5}', "p/b/2": '{"price": 6}'})
    schema = pa.schema(
        [
            pa.field("shop", pa.string(), nullable=False),
            pa.field("item", pa.int32(), nullable=False),
            ("price", pa.int64()),
        ]
    )
    table = opened(server, schema, 2, prefix="p/", separator="/")
    rows = await table.look_up(pa.record_batch({"shop": ["a", "b"], "item": pa.array([1, 1], pa.int32())}))
    assert rows.to_pylist() == [{"shop": "a", "item": 1, "price": 5}]
    await table.close()


async def test_a_key_alone_says_whether_there_is_a_value(server: ValkeyServer, client: redis.asyncio.Redis) -> None:
    await client.set("users:1", "{}")
    assert await found(opened(server, pa.schema([USERS.field("id")])), 1, 2) == [{"id": 1}]


@pytest.mark.parametrize(("value", "reason"), [("[1]", ""), ('{"score": "x"}', ""), ("", "it is empty"), ("{", "")])
async def test_a_value_that_is_no_row_is_named(
    server: ValkeyServer, client: redis.asyncio.Redis, value: str, reason: str
) -> None:
    await client.mset({"users:1": "{}", "users:5": value, "users:6": "{}"})
    with pytest.raises(UserError, match=f"table users: the value of 'users:5' is no row: {reason}"):
        await found(opened(server), 1, 2, 5, 6)


async def test_a_field_of_another_type_is_named(server: ValkeyServer, client: redis.asyncio.Redis) -> None:
    await client.hset("users:1", mapping={"score": "1"})
    await client.hset("users:5", mapping={"score": "much"})
    with pytest.raises(UserError, match="the value of 'users:5' is no row: score is no double"):
        await found(opened(server, value="hash"), 1, 5)


async def test_a_value_of_another_kind_is_the_users_error(server: ValkeyServer, client: redis.asyncio.Redis) -> None:
    await client.set("users:1", "{}")
    with pytest.raises(UserError, match=r"table users: .*WRONGTYPE"):
        await found(opened(server, value="hash"), 1)


async def test_a_password_that_is_wrong_is_the_users_error_and_is_not_shown() -> None:
    async with temporary_valkey("--requirepass", "right") as server:
        url = server.url.replace("unix://", "unix://:s3cret@")
        with pytest.raises(UserError, match="table users") as caught:
            await found(opened(server, url=url), 1)
        assert "s3cret" not in str(caught.value)
        client = redis.asyncio.Redis.from_url(server.url.replace("unix://", "unix://:right@"))
        await client.set("users:1", "{}")
        await client.aclose()
        assert len(await found(opened(server, url=server.url.replace("unix://", "unix://:right@")), 1)) == 1


async def test_a_server_that_ends_is_an_external_error_until_it_is_back() -> None:
    async with temporary_valkey() as server:
        table = opened(server)
        keys = pa.record_batch({"id": pa.array([1], pa.int64())})
        assert (await table.look_up(keys)).num_rows == 0
        await server.stop()
        with pytest.raises(ExternalError, match="table users"):
            await table.look_up(keys)
        await server.start()
        assert (await table.look_up(keys)).num_rows == 0
        await table.close()


def test_columns_that_redis_cannot_hold_are_refused_before_a_job_runs() -> None:
    values = pa.schema([("tags", pa.list_(pa.string()))])
    key = pa.schema([USERS.field("id")])
    Redis().check_lookup(RedisLookupOptions(url="x"), key, values)
    with pytest.raises(UnsupportedType, match="column tags"):
        Redis().check_lookup(RedisLookupOptions(url="x", value="hash"), key, values)
    with pytest.raises(UnsupportedType, match="column day"):
        Redis().check_lookup(RedisLookupOptions(url="x"), pa.schema([("day", pa.date32())]), values)
