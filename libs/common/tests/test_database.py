from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from penstock.common.config import load_config
from penstock.common.database import DatabaseSettings, Pool, database_errors, migrate, open_database
from penstock.common.embedded import EmbeddedPostgres
from penstock.common.errors import DatabaseUnavailable, InternalError, RetryHint, SettingsError
from penstock.common.testing import eventually
from penstock.common.testing_servers import temporary_database, temporary_postgres


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    async with temporary_postgres() as server:
        yield server


@pytest.fixture
async def pool(postgres: EmbeddedPostgres) -> AsyncIterator[Pool]:
    async with temporary_database(postgres) as url:
        pool = await open_database(url, settings())
        try:
            yield pool
        finally:
            await pool.close()


def settings(**changes: object) -> DatabaseSettings:
    return load_config(environment={}).section("database", DatabaseSettings).model_copy(update=changes)


def write_migrations(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, sql in files.items():
        (folder / name).write_text(sql)
    return folder


async def versions(pool: Pool) -> list[int]:
    return [row["version"] for row in await pool.fetch("SELECT version FROM schema_migrations ORDER BY version")]


async def test_later_calls_work_after_postgres_was_killed_and_started_again(tmp_path: Path) -> None:
    server = await EmbeddedPostgres.start(tmp_path)
    pool = await open_database(server.url, settings())
    try:
        # More than one connection is in the pool when the server dies, one of them in use.
        async with pool.acquire() as used:
            await pool.execute("CREATE TABLE kept (answer int)")
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(DatabaseUnavailable) as caught, database_errors():
                await used.execute("SELECT pg_sleep(5)")
            assert caught.value.retry is RetryHint.BACKOFF
        async with asyncio.timeout(5):
            await server.ended.wait()
        with pytest.raises(DatabaseUnavailable), database_errors():
            await pool.execute("SELECT 1")
        server = await EmbeddedPostgres.start(tmp_path)
        for _ in range(4):
            with database_errors():
                assert await pool.fetchval("SELECT count(*) FROM kept") == 0
    finally:
        await pool.close()
        await server.stop()


async def test_a_server_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    first = await EmbeddedPostgres.start(tmp_path)
    await first.stop()
    opening = asyncio.create_task(open_database(first.url, settings()))
    server = await EmbeddedPostgres.start(tmp_path)
    pool = await opening
    assert await pool.fetchval("SELECT 1") == 1
    await pool.close()
    await server.stop()


async def test_a_server_that_never_comes_is_an_error_that_shows_no_password(tmp_path: Path) -> None:
    url = f"postgresql://user:hunter2@/postgres?host={tmp_path}"
    with pytest.raises(DatabaseUnavailable, match="within 300ms") as caught:
        await open_database(url, settings(connect_timeout=timedelta(milliseconds=300)))
    assert "hunter2" not in str(caught.value)


async def test_a_database_that_does_not_exist_is_a_settings_error_at_once(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        await open_database(postgres.url.replace("/postgres?", "/nowhere?"), settings())


@pytest.mark.parametrize("url", ["mysql://host/database", "postgresql://host:port:secret/x"])
async def test_another_url_is_a_settings_error_that_does_not_show_it(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        await open_database(url, settings())
    assert "secret" not in str(caught.value)


async def test_a_statement_beyond_its_time_is_unavailability(postgres: EmbeddedPostgres) -> None:
    pool = await open_database(postgres.url, settings(command_timeout=timedelta(milliseconds=100)))
    try:
        with pytest.raises(DatabaseUnavailable, match="in time"), database_errors():
            await pool.execute("SELECT pg_sleep(5)")
    finally:
        await pool.close()


async def test_a_wrong_statement_stays_what_it_is(pool: Pool) -> None:
    with pytest.raises(asyncpg.UndefinedTableError), database_errors():
        await pool.execute("SELECT * FROM nowhere")
    with pytest.raises(asyncpg.DataError), database_errors():
        await pool.execute("SELECT $1::int", "text")
    async with pool.acquire() as connection:
        sleeping = asyncio.create_task(connection.execute("SELECT pg_sleep(0.2)"))
        await asyncio.sleep(0)
        with pytest.raises(asyncpg.InterfaceError, match="another operation"), database_errors():
            await connection.execute("SELECT 1")
        await sleeping


async def test_migrations_are_applied_once_and_in_order(pool: Pool, tmp_path: Path) -> None:
    folder = write_migrations(
        tmp_path,
        {"0001_first.sql": "CREATE TABLE a (x int); CREATE TABLE b (x int);", "0002_second.sql": "DROP TABLE a;"},
    )
    assert await migrate(pool, folder) == (1, 2)
    assert await migrate(pool, folder) == ()
    write_migrations(folder, {"0003_third.sql": "DROP TABLE b;"})
    assert await migrate(pool, folder) == (3,)
    row = await pool.fetchrow("SELECT * FROM schema_migrations WHERE version = 3")
    assert row is not None
    assert row["name"] == "third"
    assert len(row["sha256"]) == 64
    assert row["applied_at"] is not None


async def test_many_at_once_apply_each_migration_once(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    files = {f"{number:04}_step.sql": f"CREATE TABLE t{number} (x int); SELECT pg_sleep(0.05);" for number in (1, 2, 3)}
    folder = write_migrations(tmp_path, files)
    async with temporary_database(postgres) as url:
        pools = [await open_database(url, settings()) for _ in range(3)]
        try:
            applied = await asyncio.gather(*(migrate(pool, folder) for pool in (*pools, *pools)))
            assert sorted(applied) == [(), (), (), (), (), (1, 2, 3)]
        finally:
            for pool in pools:
                await pool.close()


async def test_a_failed_migration_leaves_nothing_and_can_be_repaired(pool: Pool, tmp_path: Path) -> None:
    folder = write_migrations(
        tmp_path, {"0001_good.sql": "CREATE TABLE a (x int);", "0002_bad.sql": "CREATE TABLE b (x int); SELECT wrong;"}
    )
    with pytest.raises(InternalError, match=r"0002_bad failed.*wrong"):
        await migrate(pool, folder)
    assert await versions(pool) == [1]
    write_migrations(folder, {"0002_bad.sql": "CREATE TABLE b (x int);"})
    assert await migrate(pool, folder) == (2,)


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(pool: Pool, tmp_path: Path) -> None:
    folder = write_migrations(tmp_path, {"0001_first.sql": "CREATE TABLE a (x int);"})
    await migrate(pool, folder)
    write_migrations(folder, {"0001_first.sql": "CREATE TABLE a (x bigint);"})
    with pytest.raises(InternalError, match="0001_first was changed"):
        await migrate(pool, folder)


async def test_a_database_newer_than_the_code_is_refused(pool: Pool, tmp_path: Path) -> None:
    newer = write_migrations(tmp_path / "newer", {"0001_first.sql": "SELECT 1;", "0002_second.sql": "SELECT 1;"})
    older = write_migrations(tmp_path / "older", {"0001_first.sql": "SELECT 1;"})
    await migrate(pool, newer)
    with pytest.raises(SettingsError, match="version 2 and this code's at 1"):
        await migrate(pool, older)


@pytest.mark.parametrize("name", ["1_first.sql", "0001-first.sql", "0002_gap.sql"])
async def test_files_that_are_misnamed_or_leave_a_gap_are_refused(pool: Pool, tmp_path: Path, name: str) -> None:
    folder = write_migrations(tmp_path, {name: "SELECT 1;"})
    with pytest.raises(InternalError):
        await migrate(pool, folder)


async def test_the_lock_of_a_migrating_service_that_died_is_free(pool: Pool, tmp_path: Path) -> None:
    folder = write_migrations(tmp_path, {"0001_slow.sql": "SELECT pg_sleep(30); CREATE TABLE a (x int);"})
    migrating = asyncio.create_task(migrate(pool, folder))

    async def sleeping() -> bool:
        return bool(
            await pool.fetchval("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30)%'")
        )

    await eventually(sleeping)
    await pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30)%' "
        "AND pid <> pg_backend_pid()"
    )
    with pytest.raises(DatabaseUnavailable):
        await migrating
    write_migrations(folder, {"0001_slow.sql": "CREATE TABLE a (x int);"})
    assert await migrate(pool, folder) == (1,)


async def test_the_project_s_own_migrations_apply_to_an_empty_database(pool: Pool) -> None:
    assert (await migrate(pool))[0] == 1
    assert await migrate(pool) == ()
