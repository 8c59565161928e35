from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from penstock.common.errors import DatabaseUnavailable
from penstock.common.testing import eventually
from penstock.controller.election import Election, Mandate
from penstock.controller.lease import Lease

LASTS, INTERVAL = timedelta(seconds=0.2), timedelta(seconds=0.02)


class MemoryLease:
    """The lease's twin, with a clock of its own; `away` makes it as Postgres is when it is not there."""

    def __init__(self) -> None:
        self.lease = Lease(0, "", "", datetime.fromtimestamp(0, UTC))
        self.away = False

    async def look(self) -> tuple[Lease, datetime]:
        self._answer()
        return self.lease, datetime.now(UTC)

    async def swap(self, seen: Lease, wanted: Lease) -> bool:
        self._answer()
        if self.lease != seen:
            return False
        self.lease = wanted
        return True

    def _answer(self) -> None:
        if self.away:
            raise DatabaseUnavailable("the twin is away")


@asynccontextmanager
async def standing(store: MemoryLease, name: str) -> AsyncIterator[Election]:
    loop = asyncio.get_running_loop()
    election = Election(store, name, lambda: f"{name}:1", lasts=LASTS, interval=INTERVAL, clock=loop.time)
    running = asyncio.create_task(election.run())
    yield election
    running.cancel()
    await asyncio.wait({running})


async def won(election: Election) -> Mandate:
    async with asyncio.timeout(5):
        return await election.won()


async def test_one_leads_and_the_other_knows_where_it_is() -> None:
    store = MemoryLease()
    async with standing(store, "one") as one, standing(store, "two") as two:
        mandate = await won(one)
        waiting = asyncio.create_task(two.won())

        async def followed() -> bool:
            return two.leader == "one:1"

        await eventually(followed)
        await asyncio.sleep(3 * LASTS.total_seconds())  # far longer than the lease lasts
        assert not waiting.done()
        assert (one.leads, two.leads, mandate.generation) == (True, False, 1)
        assert two.refusal().leader == "one:1"
        waiting.cancel()


async def test_one_that_resigns_is_followed_at_once() -> None:
    store = MemoryLease()
    async with standing(store, "one") as one, standing(store, "two") as two:
        mandate = await won(one)
        waiting = asyncio.create_task(won(two))
        await one.resign()
        assert mandate.lost.is_set()
        assert (await waiting).generation == 2


async def test_one_that_is_deposed_learns_it_and_can_lead_again() -> None:
    store = MemoryLease()
    async with standing(store, "one") as one:
        mandate = await won(one)
        store.lease = Lease(7, "two", "two:1", datetime.now(UTC) + LASTS)
        async with asyncio.timeout(5):
            await mandate.lost.wait()
        assert (await won(one)).generation == 8


async def test_without_postgres_a_leader_is_unsure_and_leads_on_and_is_not_replaced_after() -> None:
    store = MemoryLease()
    async with standing(store, "one") as one, standing(store, "two") as two:
        mandate = await won(one)
        waiting = asyncio.create_task(two.won())
        await two.looked()
        store.away = True

        async def unsure() -> bool:
            return one.is_unsure

        await eventually(unsure)
        assert one.leads
        store.away = False

        async def sure() -> bool:
            return not one.is_unsure

        await eventually(sure)
        await asyncio.sleep(2 * LASTS.total_seconds())
        assert not waiting.done()
        assert not mandate.lost.is_set()
        waiting.cancel()


async def test_nobody_takes_a_lease_that_nobody_would_use() -> None:
    store = MemoryLease()
    async with standing(store, "one") as one:
        await one.looked()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * INTERVAL.total_seconds()):
                await asyncio.Event().wait()
        assert store.lease.generation == 0
        assert not one.leads
