"""The `[embedded]` and `[cli]` sections of the settings; `defaults.toml` says what each key means."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.common.config import Settings

_SYSTEM_STATE = Path("/var/lib/penstock")


class EmbeddedSettings(Settings):
    state_dir: str

    @property
    def state_path(self) -> Path:
        """Where `penstock up` keeps everything."""
        if self.state_dir:
            return Path(self.state_dir).expanduser()
        if os.geteuid() == 0:
            # Postgres does not run as root, and nobody else can enter root's home.
            return _SYSTEM_STATE
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "penstock"


class CliSettings(Settings):
    api: str
    token: str
