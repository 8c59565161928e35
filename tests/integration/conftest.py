"""One cluster for the tests that share it: starting one takes several JVMs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from harness import Deployment


@pytest.fixture(scope="session")
async def cluster() -> AsyncIterator[Deployment]:
    """Two nodes of two slots; a test leaves it as it found it."""
    async with Deployment.running(nodes=2, slots=2) as deployment:
        yield deployment
