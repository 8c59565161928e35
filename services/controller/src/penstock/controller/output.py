"""The rows of previews on their way to whoever looks at them.

A job's buffer keeps its newest rows, up to a number of rows and of bytes. Every reader starts with the oldest that is
kept. A row that a reader has not had yet is never dropped for a newer one: the sender waits instead. With nobody
reading, the oldest rows make room, and are counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from penstock.common.ids import Generation, JobId


@dataclass(frozen=True, slots=True)
class OutputData:
    """Some rows of a table from one subtask, as lines of JSON."""

    table: str
    subtask: int
    rows: int
    lines: bytes


@dataclass(eq=False, slots=True)
class _Reader:
    position: int


class OutputBuffer:
    """The rows of one job."""

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._kept: deque[OutputData] = deque()
        self._first = 0  # the position of the oldest that is kept
        self._seen = 0  # the position up to which someone has read
        self._rows = 0
        self._bytes = 0
        self._readers: set[_Reader] = set()
        self._dropped: Counter[tuple[str, int]] = Counter()
        self._generation = Generation(0)
        self._sequences: dict[tuple[str, int], int] = {}
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def dropped(self) -> Mapping[tuple[str, int], int]:
        """The rows that nobody was there to see, by table and subtask."""
        return self._dropped

    async def put(self, data: OutputData, generation: Generation, sequence: int) -> None:
        """Add rows, once there is room for them; what is larger than the whole buffer goes in alone.

        What a subtask sends again, since it heard no answer, is there once.
        """
        while not self._is_known(data, generation, sequence) and not self._make_room(data):
            await self._changed.wait()
        if self._is_known(data, generation, sequence):
            return
        self._sequences[data.table, data.subtask] = sequence
        self._kept.append(data)
        self._rows += data.rows
        self._bytes += len(data.lines)
        self._notify()

    def close(self) -> None:
        """No more rows will come: readers end when they have had all."""
        self._closed = True
        self._notify()

    def reopen(self) -> None:
        """The job runs again."""
        self._closed = False

    async def read(self) -> AsyncIterator[OutputData]:
        """All that is kept, then what comes, until the buffer is closed."""
        reader = _Reader(self._first)
        self._readers.add(reader)
        try:
            while True:
                while reader.position < self._first + len(self._kept):
                    yield self._kept[reader.position - self._first]
                    # Only now: what a reader could not take any more is not seen.
                    reader.position += 1
                    self._seen = max(self._seen, reader.position)
                    self._notify()
                if self._closed:
                    return
                await self._changed.wait()
        finally:
            self._readers.discard(reader)
            self._notify()

    def _is_known(self, data: OutputData, generation: Generation, sequence: int) -> bool:
        if generation != self._generation:
            self._generation = generation
            self._sequences.clear()
        return sequence <= self._sequences.get((data.table, data.subtask), 0)

    def _make_room(self, data: OutputData) -> bool:
        while self._kept and not self._fits(data):
            if any(reader.position <= self._first for reader in self._readers):
                return False
            self._drop_oldest()
        return True

    def _fits(self, data: OutputData) -> bool:
        return self._rows + data.rows <= self._max_rows and self._bytes + len(data.lines) <= self._max_bytes

    def _drop_oldest(self) -> None:
        oldest = self._kept.popleft()
        self._rows -= oldest.rows
        self._bytes -= len(oldest.lines)
        if self._first >= self._seen:
            self._dropped[oldest.table, oldest.subtask] += oldest.rows
        self._first += 1

    def _notify(self) -> None:
        """Wake whoever waits; who waits from now on waits for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()


class Outputs:
    """The buffers of jobs: of all that run, and of the last that ended."""

    def __init__(self, *, max_rows: int, max_bytes: int, kept: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._kept = kept
        self._buffers: dict[JobId, OutputBuffer] = {}
        self._ended: OrderedDict[JobId, None] = OrderedDict()

    def of(self, job: JobId) -> OutputBuffer:
        """The buffer of a job, made when it is first asked for."""
        return self._buffers.setdefault(job, OutputBuffer(self._max_rows, self._max_bytes))

    def find(self, job: JobId) -> OutputBuffer | None:
        return self._buffers.get(job)

    def open(self, job: JobId) -> None:
        """A job is under way."""
        self._ended.pop(job, None)
        if job in self._buffers:
            self._buffers[job].reopen()

    def close(self, job: JobId) -> None:
        """A job has ended; its rows are kept for a while."""
        if job not in self._buffers:
            return
        self._buffers[job].close()
        self._ended[job] = None
        while len(self._ended) > self._kept:
            oldest, _ = self._ended.popitem(last=False)
            del self._buffers[oldest]
