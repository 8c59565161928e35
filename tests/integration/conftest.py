"""One cluster for the tests that share it: starting one takes several JVMs. Of those that take long, each day a few."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
from harness import Deployment
from reference.cases import CHOSEN, FULL, SEED

from penstock.spark import Engine
from penstock.spark.testing import spark_settings

_TURNS: Final = 6


@pytest.fixture(scope="session")
async def engine() -> AsyncIterator[Engine]:
    """Which answers, in one batch, what DuckDB cannot."""
    async with await Engine.start(spark_settings()) as engine:
        yield engine


@pytest.fixture(scope="session")
async def cluster() -> AsyncIterator[Deployment]:
    """Two nodes of two slots, and three controllers; a test leaves it as it found it."""
    async with Deployment.running(nodes=2, slots=2, controllers=3) as deployment:
        yield deployment


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests that take turns, those whose day it is; in full, all."""
    taking_turns = [item for item in items if item.get_closest_marker("takes_turns")]
    if FULL or CHOSEN or len(taking_turns) == len(items):  # the last: they were asked for
        return
    left_out = {item for place, item in enumerate(taking_turns) if (place + SEED) % _TURNS}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
