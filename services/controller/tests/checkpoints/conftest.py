from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from penstock.common.bus import Bus
from penstock.common.database import Pool
from penstock.controller.service import Serving
from penstock.controller.testing import FakeWorkers, quick_settings, running_controller

Running = Callable[..., AbstractAsyncContextManager[Serving]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def running(pool: Pool, bus: Bus, workers: FakeWorkers, folder: Path) -> Running:
    """A controller whose jobs have checkpoints, with some of their settings."""

    def run(**checkpoints: str) -> AbstractAsyncContextManager[Serving]:
        environment = {f"PENSTOCK__CHECKPOINTS__{name.upper()}": value for name, value in checkpoints.items()}
        return running_controller(
            pool, bus, quick_settings(), workers, checkpoint_folder=folder, environment=environment
        )

    return run


@pytest.fixture
async def controller(running: Running) -> AsyncIterator[Serving]:
    async with running() as serving:
        yield serving
