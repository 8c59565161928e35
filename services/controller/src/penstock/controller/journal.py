"""Writes what happens to jobs in its order, and announces it; Postgres being away delays it and loses nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from penstock.common.errors import DatabaseUnavailable
from penstock.common.events import LogEvent
from penstock.controller.records import Entry

_BATCH: Final = 100
_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 2.0
# A job makes a few entries between two that it waits for, but warnings have no such limit.
_MOST_WARNINGS: Final = 1000

log = structlog.get_logger(__name__)


class EntryStore(Protocol):
    async def record(self, entries: Sequence[Entry]) -> None: ...


class WriteJournal:
    """A queue of entries and the loop that empties it."""

    def __init__(self, store: EntryStore, announce: Callable[[Entry], None]) -> None:
        self._store = store
        self._announce = announce
        self._entries: deque[tuple[Entry, asyncio.Future[None] | None]] = deque()
        self._warnings = 0
        self._appended = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._delayed = False

    @property
    def waiting(self) -> int:
        return len(self._entries)

    def append(self, entry: Entry) -> None:
        """Have an entry written; one that is only a warning is dropped when too many wait."""
        if entry.is_warning:
            if self._warnings >= _MOST_WARNINGS:
                return
            self._warnings += 1
        self._put(entry, None)

    async def write(self, entry: Entry) -> None:
        """Have an entry written, and wait until it is."""
        written = asyncio.get_running_loop().create_future()
        self._put(entry, written)
        await written

    async def flushed(self) -> None:
        """Wait until nothing is left to be written."""
        await self._empty.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._appended.wait()
            while self._entries:
                batch = [self._entries[index] for index in range(min(len(self._entries), _BATCH))]
                await self._write_batch([entry for entry, _ in batch])
                for entry, written in batch:
                    self._entries.popleft()
                    self._warnings -= entry.is_warning
                    if written is not None and not written.done():
                        written.set_result(None)
            self._appended.clear()
            self._empty.set()

    def _put(self, entry: Entry, written: asyncio.Future[None] | None) -> None:
        self._entries.append((entry, written))
        self._empty.clear()
        self._appended.set()

    async def _write_batch(self, entries: Sequence[Entry]) -> None:
        """A batch that is refused is written one by one, so that only the culprit is left out."""
        try:
            await self._write_when_possible(entries)
        except Exception as error:
            if len(entries) == 1:
                log.error(LogEvent.JOURNAL_REFUSED, job=entries[0].job_id, reason=str(error) or type(error).__name__)
                return
            for entry in entries:
                await self._write_batch([entry])
            return
        for entry in entries:
            self._announce(entry)

    async def _write_when_possible(self, entries: Sequence[Entry]) -> None:
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                await self._store.record(entries)
            except DatabaseUnavailable as error:
                if not self._delayed:
                    log.warning(LogEvent.JOURNAL_DELAYED, waiting=self.waiting, reason=str(error))
                self._delayed = True
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
            else:
                if self._delayed:
                    log.info(LogEvent.JOURNAL_CAUGHT_UP, waiting=self.waiting)
                self._delayed = False
                return
