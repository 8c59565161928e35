"""One engine for all tests that do not end it: a JVM costs seconds and half a gigabyte."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.common.config import load_config
from penstock.spark import Engine, SparkSettings


def spark_settings(**changes: object) -> SparkSettings:
    return (
        load_config(environment={}).section("spark", SparkSettings).model_copy(update={"master": "local[2]", **changes})
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[Engine]:
    async with await Engine.start(spark_settings()) as engine:
        yield engine
