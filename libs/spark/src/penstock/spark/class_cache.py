"""The JVM's class cache: what start-up loads and compiles, kept from one start to the next.

JDK 25 and later record an ahead-of-time cache, earlier ones a class-data archive. A cache is good only for the very
Java, class path and options that made it, so all of them are in its name; the JVM checks again and starts without
it when it does not fit.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.spark.java import Java

_KEPT: Final = 4
_REFUSED_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class ClassCache:
    """Where one Java's cache for one class path is, and how to use and to make it."""

    java: Java
    path: Path

    @classmethod
    def of(cls, folder: Path, java: Java, class_path: Sequence[Path]) -> ClassCache:
        """The cache for this Java and class path."""
        digest = hashlib.sha256(repr((java.version, java.options)).encode())
        for entry in class_path:
            status = entry.stat()
            digest.update(repr((str(entry), status.st_size, status.st_mtime_ns)).encode())
        suffix = "aot" if java.has_aot_cache else "jsa"
        return cls(java, folder / f"classes-{digest.hexdigest()[:16]}.{suffix}")

    def use_options(self) -> tuple[str, ...]:
        """The options that use the cache, if it is there."""
        try:
            os.utime(self.path)  # so that the ones in use are the newest
        except FileNotFoundError:
            return ()
        return (f"-XX:AOTCache={self.path}" if self.java.has_aot_cache else f"-XX:SharedArchiveFile={self.path}",)

    def record_options(self, into: Path) -> tuple[str, ...]:
        """The options that record a cache when the JVM exits."""
        return (f"-XX:AOTCacheOutput={into}" if self.java.has_aot_cache else f"-XX:ArchiveClassesAtExit={into}",)

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to record: it is there, or this Java made none when it was last asked to."""
        return self.path.exists() or self._was_refused()

    def _was_refused(self) -> bool:
        """For a day: a machine that was too busy, or a JVM that was killed, looks the same as a Java that cannot."""
        try:
            return time.time() - self._refused.stat().st_mtime < _REFUSED_SECONDS
        except FileNotFoundError:
            return False

    @property
    def _refused(self) -> Path:
        return self.path.with_suffix(".none")

    @contextmanager
    def recording(self) -> Iterator[Path | None]:
        """A path to record into, kept as the cache when the block ends well; None when another process does."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            recorded = self.path.with_suffix(".tmp")
            try:
                yield recorded
                if recorded.exists():
                    os.replace(recorded, self.path)
                    self._prune()
                else:  # a Java without an archive of its own classes, for one, has nothing to add to
                    self._refused.touch()
            finally:
                for leftover in self.path.parent.glob(f"{recorded.name}*"):
                    leftover.unlink(missing_ok=True)

    def _prune(self) -> None:
        """Removes all caches but the last used: each is 200 MB, and an upgrade leaves one behind."""
        caches = sorted(self.path.parent.glob("classes-*.[aj][os][ta]"), key=lambda path: path.stat().st_mtime)
        for old in caches[:-_KEPT]:
            old.unlink(missing_ok=True)
            old.with_suffix(".lock").unlink(missing_ok=True)
