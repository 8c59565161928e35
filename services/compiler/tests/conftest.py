"""One engine for all tests that do not end it: a JVM costs seconds and half a gigabyte."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.spark import Engine
from penstock.spark.testing import spark_settings


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[Engine]:
    async with await Engine.start(spark_settings()) as engine:
        yield engine
