"""The `[checkpoints]` section of the settings; `defaults.toml` says what each key means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from penstock.common.config import Config, Duration, Settings, StringMap
from penstock.common.storage import Storage, open_storage


class CheckpointSettings(Settings):
    url: str
    timeout: Duration
    max_failures: Annotated[int, Field(ge=1)]
    retained: Annotated[int, Field(ge=1)]


class StorageSettings(Settings):
    """The `[storage]` section."""

    options: StringMap


def open_checkpoints(config: Config, folder: Path | None = None) -> Storage | None:
    """Where the folders of all jobs are: at `checkpoints.url`, else in a folder; None without either."""
    url = config.section("checkpoints", CheckpointSettings).url or (str(folder) if folder else "")
    return open_storage(url, config.section("storage", StorageSettings).options) if url else None
