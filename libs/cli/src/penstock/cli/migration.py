"""`penstock migrate`."""

from __future__ import annotations

from penstock.common.config import Config
from penstock.common.database import DatabaseSettings, migrate, open_database
from penstock.common.errors import SettingsError


async def migrate_database(config: Config) -> tuple[int, ...]:
    """Apply what is missing, and tell the versions."""
    settings = config.section("database", DatabaseSettings)
    if not settings.url:
        raise SettingsError("database.url is not set", hint="set it in penstock.toml or as PENSTOCK__DATABASE__URL")
    pool = await open_database(settings.url, settings)
    try:
        return await migrate(pool)
    finally:
        pool.terminate()
