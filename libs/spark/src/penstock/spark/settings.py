"""The `[spark]` section of the settings; `defaults.toml` says what each key means."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.common.config import Duration, Settings, Size, StringMap


class SparkSettings(Settings):
    """What an engine is started with."""

    java_home: str
    master: str
    heap: Size
    off_heap: Size
    class_cache: bool
    start_timeout: Duration
    stop_timeout: Duration
    cache_dir: str
    conf: StringMap

    @property
    def runs_jobs(self) -> bool:
        """Whether fragments run as Spark jobs: so they do on any master but the engine's own JVM."""
        return self.master != "local" and not self.master.startswith("local[")

    @property
    def cache_path(self) -> Path:
        """Where the built bridge and the class caches are kept."""
        if self.cache_dir:
            return Path(self.cache_dir).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
