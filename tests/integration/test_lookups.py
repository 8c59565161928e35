"""`penstock run` looks rows up in a real PostgreSQL and a real Redis, with secrets, also when they come back late."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import redis.asyncio
from harness import PENSTOCK, plain_environment

from penstock.common.testing import eventually
from penstock.common.testing_servers import temporary_database, temporary_postgres
from penstock.connectors.testing_servers import ValkeyServer, temporary_valkey

ROWS = 20_000
SQL = """
CREATE TABLE impulse WITH (connector = 'impulse', message_count = {rows});
CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL, city INT)
  WITH (connector = 'postgres', url = 'postgresql://penstock@/{{{{ SHOP_DATABASE }}}}?host={host}', type = 'lookup');
CREATE TABLE cities (code INT PRIMARY KEY, label TEXT)
  WITH (connector = 'redis', url = '{{{{ CACHE_URL }}}}', prefix = 'city:', type = 'lookup', retries = 20);
SELECT u.name, c.label, count(*) AS n FROM impulse i
JOIN users u ON u.id = i.counter % 100
LEFT JOIN cities c ON c.code = u.city
GROUP BY u.name, c.label;
"""


async def run(folder: Path, sql: str, **environment: str) -> tuple[int, list[dict[str, Any]], str]:
    query = folder / "query.sql"
    query.write_text(sql)
    process = await asyncio.create_subprocess_exec(
        str(PENSTOCK), "run", str(query), cwd=folder, env=plain_environment(**environment),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, [json.loads(line) for line in out.splitlines()], err.decode()


def standing(changes: list[dict[str, Any]]) -> dict[str, tuple[str | None, int]]:
    """What changes leave."""
    found: dict[str, tuple[str | None, int]] = {}
    for row in changes:
        if row["_op"] == "retract":
            assert found.pop(row["name"]) == (row["label"], row["n"])
        else:
            found[row["name"]] = (row["label"], row["n"])
    return found


async def fill(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE users (id INT PRIMARY KEY, name TEXT, city INT)")
        await connection.execute("INSERT INTO users SELECT n, 'u' || n, n % 3 FROM generate_series(0, 49) n")
    finally:
        await connection.close()


async def cities(server: ValkeyServer) -> None:
    """Fills it, for its next start as well: it must not answer before it has them again."""
    client = redis.asyncio.Redis.from_url(server.url)
    await client.mset({"city:0": '{"label": "Oslo"}', "city:1": '{"label": "Rome"}'})
    await client.save()
    await client.aclose()


async def is_asked(url: str) -> bool:
    """Whether somebody else is connected."""
    connection = await asyncpg.connect(url)
    try:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return bool(await connection.fetchval(others))
    finally:
        await connection.close()


async def test_rows_are_joined_with_tables_of_two_servers(tmp_path: Path) -> None:
    async with (
        temporary_postgres() as postgres,
        temporary_database(postgres) as url,
        temporary_valkey() as valkey,
    ):
        await fill(url)
        await cities(valkey)
        database, _, host = url.removeprefix("postgresql://penstock@/").partition("?host=")
        sql = SQL.format(rows=ROWS, host=quote(host, safe="/"))
        await valkey.stop()  # so that questions fail when the job comes to them

        async def come_back() -> None:
            await eventually(lambda: is_asked(url), 120)
            await valkey.start()

        returning = asyncio.create_task(come_back())
        code, changes, err = await run(tmp_path, sql, SHOP_DATABASE=database, CACHE_URL=valkey.url)
        await returning
    assert code == 0, err
    labels = {0: "Oslo", 1: "Rome", 2: None}
    assert standing(changes) == {f"u{n}": (labels[n % 3], ROWS // 100) for n in range(50)}
    assert database not in err and valkey.url not in err


async def test_a_table_that_is_not_there_fails_the_job_with_its_name(tmp_path: Path) -> None:
    async with temporary_postgres() as postgres, temporary_database(postgres) as url:
        database, _, host = url.removeprefix("postgresql://penstock@/").partition("?host=")
        sql = SQL.format(rows=10, host=quote(host, safe="/"))
        code, rows, err = await run(tmp_path, sql, SHOP_DATABASE=database, CACHE_URL="redis://127.0.0.1:1")
    assert (code, rows) == (1, [])
    assert 'table users: relation "users" does not exist' in err
