from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from penstock.common.ids import Generation, JobId
from penstock.common.jobs import JobState
from penstock.controller.journal import EntryStore, WriteJournal
from penstock.controller.records import Entry, EventKind, Failure, JobEvent, JobStatus
from penstock.controller.testing import MemoryStore, wall_clock

JOB = JobId.new()


def entry(number: int) -> Entry:
    return Entry(JOB, JobStatus(JOB, JobState.RUNNING, Generation(number)), ())


def warning() -> Entry:
    event = JobEvent(JOB, wall_clock(), EventKind.WARNING, Generation(1), failure=Failure.lost("hm"))
    return Entry(JOB, None, (event,))


@asynccontextmanager
async def writing(store: EntryStore) -> AsyncIterator[tuple[WriteJournal, list[Entry]]]:
    announced: list[Entry] = []
    journal = WriteJournal(store, announced.append)
    task = asyncio.create_task(journal.run())
    yield journal, announced
    task.cancel()


async def test_entries_are_written_in_their_order_and_announced_after() -> None:
    store = MemoryStore()
    store.away = True
    async with writing(store) as (journal, announced):
        for number in range(250):
            journal.append(entry(number))
        await asyncio.sleep(0)
        assert announced == []
        store.away = False
        await asyncio.wait_for(journal.flushed(), 5)
        assert store.entries == announced == [entry(number) for number in range(250)]


async def test_a_refused_entry_holds_up_no_other() -> None:
    class Picky(MemoryStore):
        async def record(self, entries: Sequence[Entry]) -> None:
            if entry(3) in entries:
                raise ValueError("not this one")
            await super().record(entries)

    store = Picky()
    async with writing(store) as (journal, announced):
        for number in range(6):
            journal.append(entry(number))
        await asyncio.wait_for(journal.write(entry(3)), 5)
        await asyncio.wait_for(journal.flushed(), 5)
    assert store.entries == announced == [entry(number) for number in (0, 1, 2, 4, 5)]


async def test_warnings_that_cannot_be_written_are_bounded_and_states_are_not() -> None:
    store = MemoryStore()
    store.away = True
    async with writing(store) as (journal, _):
        for _ in range(5000):
            journal.append(warning())
        for number in range(10):
            journal.append(entry(number))
        assert journal.waiting == 1010
        store.away = False
        await asyncio.wait_for(journal.flushed(), 5)
        journal.append(warning())
        assert journal.waiting == 1
