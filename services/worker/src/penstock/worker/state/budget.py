"""The memory that state may take: what does not fit is in files of a local folder, and read from there."""

from __future__ import annotations

import mmap
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

import pyarrow as pa

_LEAST_BYTES: Final = 64 * 1024  # a file for less costs more than it frees
_RELEASE_SECONDS: Final = 0.5


class Spills(Protocol):
    """Whatever keeps rows, and can have some of them elsewhere."""

    def spill(self, bytes: int) -> int:
        """Moves rows of about so many bytes to files; returns how many that were."""
        ...


class Budget:
    """What the state of one worker may hold in memory; without a limit nothing is moved."""

    def __init__(self, limit_bytes: int | None = None, folder: Path | None = None) -> None:
        self._limit = limit_bytes
        self._folder = folder
        self._held: dict[int, int] = {}
        self._total = 0
        self._maps: WeakSet[mmap.mmap] = WeakSet()
        self._released_at = time.monotonic()
        self.spilled_bytes = 0
        """What was moved so far."""

    @property
    def held_bytes(self) -> int:
        """What all holders have in memory."""
        return self._total

    def hold(self, holder: Spills, nbytes: Callable[[], int]) -> None:
        """A holder of rows has changed: it moves some of them if all together hold too much."""
        if self._limit is None:
            return
        self._note(holder, nbytes())
        if self._total > self._limit:
            moved = holder.spill(self._total - self._limit)
            self.spilled_bytes += moved
            self._note(holder, nbytes())
        self._release()

    def leave(self, holder: Spills) -> None:
        """A holder is no more."""
        self._total -= self._held.pop(id(holder), 0)

    def moved(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """The same rows, in a file that has no name and is gone with them; None when they are not worth it."""
        if rows.nbytes < _LEAST_BYTES:
            return None
        with tempfile.TemporaryFile(dir=self._folder) as file:
            with pa.ipc.new_stream(file, rows.schema) as writer:
                writer.write_batch(rows)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._maps.add(mapped)
        batch: pa.RecordBatch = pa.ipc.open_stream(pa.py_buffer(mapped)).read_next_batch()
        return batch

    def _note(self, holder: Spills, nbytes: int) -> None:
        self._total += nbytes - self._held.get(id(holder), 0)
        self._held[id(holder)] = nbytes

    def _release(self) -> None:
        """Pages of files that were read count as the process's memory until they are given back."""
        now = time.monotonic()
        if self._maps and now - self._released_at >= _RELEASE_SECONDS:
            self._released_at = now
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)


UNLIMITED: Final = Budget()
