"""PySpark's daemon of Python workers, with a cheaper collection of garbage between two batches.

PySpark searches all of a worker's objects after every task, 17 ms with pandas and pyarrow loaded, and a batch is a
task. Here what has survived a search is not searched again, but for once a minute.

It stands outside `penstock.spark` because workers are forked from it: that package loads pyarrow, and pyarrow threads.
"""

from __future__ import annotations

import gc
import time
from typing import Final

from pyspark import daemon

_FULL_SECONDS: Final = 60.0


class Collector:
    """What the daemon calls in place of `gc`."""

    def __init__(self) -> None:
        self._full_at = time.monotonic() + _FULL_SECONDS

    def collect(self) -> int:
        """Searches what is new since the last time; now and then everything."""
        if (now := time.monotonic()) >= self._full_at:
            gc.unfreeze()
            self._full_at = now + _FULL_SECONDS
        found = gc.collect()
        gc.freeze()
        return found


if __name__ == "__main__":
    daemon.__dict__["gc"] = Collector()  # there alone: `gc.collect` stays what it is for the user's functions
    daemon.manager()
