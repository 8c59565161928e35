"""Postgres: a pool that outlives restarts of the server, its errors, and the schema's migrations."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Annotated, Any

import asyncpg
import structlog
from pydantic import Field

from penstock.common.config import Duration, Settings
from penstock.common.errors import DatabaseUnavailable, InternalError, SettingsError
from penstock.common.events import LogEvent
from penstock.common.quantities import format_duration
from penstock.common.redaction import redact_message, without_credentials

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Pool = asyncpg.Pool[asyncpg.Record]
    Connection = PoolConnectionProxy[asyncpg.Record]
else:
    Pool = asyncpg.Pool
    Connection = Any

__all__ = ["Connection", "DatabaseSettings", "Pool", "database_errors", "migrate", "open_database"]

_RETRY_SECONDS = 0.1
_MIGRATION_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_MIGRATION_LOCK = 0x50454E53544F434B  # "PENSTOCK", among the locks of whoever shares the database
_MIGRATION_SECONDS = 600.0  # for one migration, and for those of another service to end

# What a server says that is away, coming up or going down; SQLSTATE classes 08 and 57P.
_AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.exceptions.ClientConfigurationError,
)

log = structlog.get_logger(__name__)


class DatabaseSettings(Settings):
    url: str
    pool_size: Annotated[int, Field(ge=1)]
    connect_timeout: Duration
    command_timeout: Duration


async def open_database(url: str, settings: DatabaseSettings) -> Pool:
    """Connect, waiting up to `connect_timeout` for a server that is not there yet; close the pool in the end."""
    limit = settings.connect_timeout
    waiting: BaseException | None = None
    try:
        async with asyncio.timeout(limit.total_seconds()):
            while True:
                try:
                    return await _create_pool(url, settings)
                except _REFUSED as error:
                    reason = redact_message(str(error))
                    raise SettingsError(f"cannot use the database: {reason}", hint="look at database.url") from error
                except (*_AWAY, asyncpg.InterfaceError) as error:
                    if waiting is None:
                        log.warning(LogEvent.DATABASE_WAITING, url=without_credentials(url), reason=str(error))
                    waiting = error
                await asyncio.sleep(_RETRY_SECONDS)
    except TimeoutError:
        reason = f": {redact_message(str(waiting))}" if waiting else ""
        message = f"no Postgres at {without_credentials(url)} within {format_duration(limit)}{reason}"
        raise DatabaseUnavailable(message, hint="is it running, and is database.url right?") from waiting


async def _create_pool(url: str, settings: DatabaseSettings) -> Pool:
    try:
        return await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=settings.pool_size,
            command_timeout=settings.command_timeout.total_seconds(),
            timeout=settings.connect_timeout.total_seconds(),
            server_settings={"application_name": "penstock"},
            reset=_leave,
        )
    except ValueError as error:
        # A malformed URL; the message would quote it.
        if isinstance(error, asyncpg.InterfaceError | OSError):
            raise
        raise SettingsError("database.url is not a Postgres URL") from None


async def _leave(_: object) -> None:
    """What is done to a connection before others get it: nothing, since nobody sets anything that outlives a
    transaction. A statement for that would double those of a service that asks little and often."""


@contextmanager
def database_errors() -> Iterator[None]:
    """The block of some statements: a server that is away is raised as DatabaseUnavailable, anything else as it is."""
    try:
        yield
    except TimeoutError as error:
        raise DatabaseUnavailable("the database did not answer in time") from error
    except _AWAY as error:
        raise DatabaseUnavailable(f"the database went away: {redact_message(str(error))}") from error
    except asyncpg.InterfaceError as error:
        # asyncpg has one class for a lost connection and for a wrong use of one.
        if "closed" not in str(error) and "closing" not in str(error):
            raise
        raise DatabaseUnavailable(f"the database went away: {error}") from error


@dataclass(frozen=True, slots=True)
class _Migration:
    version: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


async def migrate(pool: Pool, folder: Traversable | None = None) -> tuple[int, ...]:
    """Bring the schema up to this code's, and tell the versions that were applied.

    Any number of services may do so at once: one works and the others wait.
    """
    migrations = await asyncio.to_thread(_read_migrations, folder or files(__package__).joinpath("migrations"))
    with database_errors():
        async with pool.acquire() as connection:
            await connection.execute("SELECT pg_advisory_lock($1)", _MIGRATION_LOCK, timeout=_MIGRATION_SECONDS)
            try:
                pending = _derive_pending(migrations, await _applied(connection))
                for migration in pending:
                    await _apply(connection, migration)
            finally:
                if not connection.is_closed():
                    await connection.execute("SELECT pg_advisory_unlock($1)", _MIGRATION_LOCK)
    return tuple(migration.version for migration in pending)


def _read_migrations(folder: Traversable) -> tuple[_Migration, ...]:
    found = [(_MIGRATION_FILE.fullmatch(file.name), file) for file in folder.iterdir() if file.name.endswith(".sql")]
    bad = [file.name for match, file in found if match is None]
    if bad:
        raise InternalError(f"not named as a migration is, NNNN_name.sql: {', '.join(sorted(bad))}")
    migrations = [_Migration(int(match[1]), match[2], file.read_text("utf-8")) for match, file in found if match]
    migrations.sort(key=lambda migration: migration.version)
    if [migration.version for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise InternalError("the migrations are not numbered 1, 2, 3 and so on")
    return tuple(migrations)


async def _applied(connection: Connection) -> dict[int, str]:
    await connection.execute(
        """
        CREATE TABLE IF NOT EXISTS schema_migrations (
            version int PRIMARY KEY,
            name text NOT NULL,
            sha256 text NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )
    rows = await connection.fetch("SELECT version, sha256 FROM schema_migrations ORDER BY version")
    return {row["version"]: row["sha256"] for row in rows}


def _derive_pending(migrations: Sequence[_Migration], applied: dict[int, str]) -> list[_Migration]:
    newest = max(applied, default=0)
    if newest > len(migrations):
        message = f"the database's schema is at version {newest} and this code's at {len(migrations)}"
        raise SettingsError(message, hint="run a newer Penstock against this database")
    for migration in migrations:
        if applied.get(migration.version, migration.sha256) != migration.sha256:
            message = f"migration {migration.version:04}_{migration.name} was changed after it was applied"
            raise InternalError(message, hint="restore the file, and put the change into a migration of its own")
    return [migration for migration in migrations if migration.version not in applied]


async def _apply(connection: Connection, migration: _Migration) -> None:
    try:
        async with connection.transaction():
            await connection.execute(migration.sql, timeout=_MIGRATION_SECONDS)
            await connection.execute(
                "INSERT INTO schema_migrations (version, name, sha256) VALUES ($1, $2, $3)",
                migration.version,
                migration.name,
                migration.sha256,
            )
    except asyncpg.PostgresError as error:
        if isinstance(error, _AWAY):
            raise
        raise InternalError(f"migration {migration.version:04}_{migration.name} failed: {error}") from error
    log.info(LogEvent.MIGRATION_APPLIED, version=migration.version, name=migration.name)
