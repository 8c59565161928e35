from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.spark import Engine
from penstock.worker.operators import panes, partials, session, updating
from penstock.worker.operators.testing import SharedPlanner


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def planner(engine: Engine) -> AsyncIterator[SharedPlanner]:
    planner = SharedPlanner(engine)
    yield planner
    await planner.close()


@pytest.fixture(scope="module")
def small_bounds() -> Iterator[None]:
    """Bounds at which a few rows are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "_LEAST_FRESH_ROWS", 6)
        patch.setattr(partials, "_PORTION_ROWS", 8)
        patch.setattr(panes, "_LEAST_MERGED_ROWS", 2)
        patch.setattr(session, "_PORTION_HASHES", 2)
        patch.setattr(updating, "_LEAST_FRESH_ROWS", 6)
        yield
