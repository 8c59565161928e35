"""One leader at a time, whatever clocks, pauses and losses do: by the decisions alone, and with Postgres."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.common.database import Pool
from penstock.common.ids import JobId
from penstock.common.testing import eventually
from penstock.controller.lease import (
    LeaderWrites,
    Lease,
    LeaseLost,
    PostgresLease,
    resolve_claim,
    resolve_release,
    resolve_renewal,
)
from penstock.controller.records import Entry
from penstock.controller.store import PostgresStore

FULL = bool(os.environ.get("PENSTOCK_TEST_FULL"))
LASTS = timedelta(seconds=5)
START = datetime(2026, 1, 1, tzinfo=UTC)
CONTROLLERS = st.sampled_from(["one", "two", "three"])


@dataclass(frozen=True)
class Attempt:
    """What a controller has read and is about to write."""

    seen: Lease
    wanted: Lease


class Leases(RuleBasedStateMachine):
    """Controllers that read, are paused for any time, and then write; answers may be lost, and a clock may jump."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.lease = Lease(0, "", "", START)
        self.attempts: dict[str, Attempt] = {}
        self.leading: dict[str, int] = {}
        self.taken: dict[int, str] = {}
        self.written: list[int] = []

    @rule(seconds=st.integers(-3, 8))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(controller=CONTROLLERS)
    def looks(self, controller: str) -> None:
        generation = self.leading.get(controller)
        if generation is None:
            wanted = resolve_claim(self.lease, controller, controller, self.now, LASTS)
            if wanted is not None:
                assert self.lease.holder == controller or self.lease.expires_at <= self.now
        else:
            wanted = resolve_renewal(self.lease, generation, self.now, LASTS)
            if wanted is None:
                del self.leading[controller]
        self.attempts.pop(controller, None)
        if wanted is not None:
            self.attempts[controller] = Attempt(self.lease, wanted)

    @rule(controller=CONTROLLERS, answered=st.booleans())
    def swaps(self, controller: str, answered: bool) -> None:
        attempt = self.attempts.pop(controller, None)
        if attempt is None:
            return
        if self.lease == attempt.seen:
            if attempt.wanted.generation > self.lease.generation:
                assert attempt.wanted.generation not in self.taken
                self.taken[attempt.wanted.generation] = controller
            self.lease = attempt.wanted
            if answered:
                self.leading[controller] = attempt.wanted.generation
        elif answered:
            self.leading.pop(controller, None)

    @rule(controller=CONTROLLERS)
    def resigns(self, controller: str) -> None:
        generation = self.leading.pop(controller, None)
        if generation is not None:
            self.lease = resolve_release(self.lease, generation, self.now) or self.lease

    @rule(controller=CONTROLLERS)
    def restarts(self, controller: str) -> None:
        self.leading.pop(controller, None)
        self.attempts.pop(controller, None)

    @rule(controller=CONTROLLERS)
    def writes(self, controller: str) -> None:
        generation = self.leading.get(controller)
        if generation is not None and generation == self.lease.generation:
            self.written.append(generation)

    @invariant()
    def at_most_one_is_heard(self) -> None:
        assert sum(generation == self.lease.generation for generation in self.leading.values()) <= 1

    @invariant()
    def leaders_write_one_after_the_other(self) -> None:
        assert self.written == sorted(self.written)
        for controller, generation in self.leading.items():
            assert self.taken[generation] == controller


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=2000 if FULL else 100, stateful_step_count=60, deadline=None)


def test_a_lease_that_ran_out_is_its_holders_until_it_is_taken() -> None:
    lease = Lease(3, "one", "one:1", START)
    late = START + timedelta(hours=1)
    assert resolve_renewal(lease, 3, late, LASTS) == replace(lease, expires_at=late + LASTS)
    taken = resolve_claim(lease, "two", "two:1", late, LASTS)
    assert taken == Lease(4, "two", "two:1", late + LASTS)
    assert resolve_renewal(taken, 3, late, LASTS) is None


def test_a_lease_that_was_given_back_is_free_at_once_and_its_generation_is_not_used_again() -> None:
    lease = Lease(3, "one", "one:1", START + LASTS)
    assert resolve_claim(lease, "two", "two:1", START, LASTS) is None
    released = resolve_release(lease, 3, START)
    assert released is not None
    taken = resolve_claim(released, "two", "two:1", START, LASTS)
    assert taken is not None
    assert taken.generation == 4


async def take(pool: Pool, holder: str) -> int:
    store = PostgresLease(pool, timeout=timedelta(seconds=5))
    lease, now = await store.look()
    wanted = resolve_claim(replace(lease, expires_at=START), holder, holder, now, LASTS)
    assert wanted is not None
    assert await store.swap(lease, wanted)
    await store.close()
    return wanted.generation


async def test_of_many_that_want_it_at_once_one_takes_it(pool: Pool) -> None:
    async def attempt(number: int) -> bool:
        store = PostgresLease(pool, timeout=timedelta(seconds=5))
        lease, now = await store.look()
        wanted = resolve_claim(lease, str(number), "", now, LASTS)
        assert wanted is not None
        seen.append(number)
        await eventually(all_saw)
        taken = await store.swap(lease, wanted)
        await store.close()
        return taken

    async def all_saw() -> bool:
        return len(seen) == 8

    seen: list[int] = []
    assert sum(await asyncio.gather(*map(attempt, range(8)))) == 1


async def test_what_a_deposed_leader_writes_is_refused_as_a_whole(pool: Pool) -> None:
    refused: list[int] = []
    old = LeaderWrites(pool, await take(pool, "one"), lambda: refused.append(1))
    store = PostgresStore(pool, old)
    await store.mirror([], [])
    new = LeaderWrites(pool, await take(pool, "two"), lambda: refused.append(2))
    with pytest.raises(LeaseLost):
        await store.record([Entry(JobId.new(), None, ())])
    with pytest.raises(LeaseLost):
        await old.confirm()
    await new.confirm()
    assert refused == [1, 1]


async def test_a_change_of_leaders_waits_for_what_the_old_one_is_writing(pool: Pool) -> None:
    writes = LeaderWrites(pool, await take(pool, "one"), lambda: None)
    async with writes.transaction() as connection:
        taking = asyncio.create_task(take(pool, "two"))
        renewing = PostgresLease(pool, timeout=timedelta(seconds=5))
        lease, now = await renewing.look()
        # Not so the leader's own renewal.
        await connection.execute("SELECT pg_sleep(0.2)")
        assert not taking.done()
        renewed = resolve_renewal(lease, lease.generation, now, LASTS)
        assert renewed is not None
    assert await taking == lease.generation + 1
    assert not await renewing.swap(lease, renewed)
    await renewing.close()


async def test_renewals_wait_for_no_write(pool: Pool) -> None:
    writes = LeaderWrites(pool, await take(pool, "one"), lambda: None)
    store = PostgresLease(pool, timeout=timedelta(seconds=1))
    async with writes.transaction():
        lease, now = await store.look()
        renewed = resolve_renewal(lease, lease.generation, now, LASTS)
        assert renewed is not None
        assert await store.swap(lease, renewed)
    await store.close()


async def test_a_leader_that_is_suspended_as_it_writes_holds_up_nobody_for_long(pool: Pool) -> None:
    writes = LeaderWrites(pool, await take(pool, "one"), lambda: None)
    # The transaction is never ended, as by a process that is stopped.
    connection = await pool.acquire()
    await connection.execute("BEGIN")
    assert await connection.fetchval(writes._query) is not None
    async with asyncio.timeout(5):
        await take(pool, "two")
