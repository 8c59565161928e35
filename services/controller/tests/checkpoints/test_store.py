from __future__ import annotations

from dataclasses import replace

from penstock.common.database import Pool
from penstock.common.ids import Epoch, Generation, JobId
from penstock.controller.checkpoints.records import CheckpointRecord, CheckpointState
from penstock.controller.checkpoints.store import PostgresCheckpoints
from penstock.controller.records import Entry
from penstock.controller.store import PostgresStore
from penstock.controller.testing import leader_writes, wall_clock

JOB = JobId.new()


def record(epoch: int, state: CheckpointState = CheckpointState.READY) -> CheckpointRecord:
    return CheckpointRecord(JOB, Epoch(epoch), Generation(1), state, False, wall_clock())


async def write(pool: Pool, *records: CheckpointRecord) -> None:
    await PostgresStore(pool, leader_writes(pool)).record([Entry(JOB, None, (), each) for each in records])


async def test_states_are_those_of_postgres(pool: Pool) -> None:
    rows = await pool.fetch("SELECT unnest(enum_range(NULL::checkpoint_state))::text AS state")
    assert {row["state"] for row in rows} == set(CheckpointState)


async def test_what_can_be_restored_is_found_and_no_epoch_is_forgotten(pool: Pool) -> None:
    store = PostgresCheckpoints(pool, leader_writes(pool))
    assert (await store.known(JOB)).last_epoch == 0
    states = list(CheckpointState)
    await write(pool, *(record(number, state) for number, state in enumerate(states, start=1)))
    known = await store.known(JOB)
    assert known.last_epoch == len(states)
    assert {each.state for each in known.completed} == {CheckpointState.COMMITTING, CheckpointState.READY}
    assert await store.completed(JOB) == known.completed
    await store.expire(JOB, [each.epoch for each in known.completed], 50)
    assert (await store.known(JOB)).completed == ()


async def test_rows_of_long_ago_are_pruned_but_not_what_can_be_restored(pool: Pool) -> None:
    store = PostgresCheckpoints(pool, leader_writes(pool))
    old = [record(1), record(2, CheckpointState.ABANDONED), record(3, CheckpointState.DELETED)]
    await write(pool, *old, record(100, CheckpointState.DELETED))
    await store.expire(JOB, (), 50)
    rows = await pool.fetch("SELECT epoch FROM checkpoints ORDER BY epoch")
    assert [row["epoch"] for row in rows] == [1, 100]
    await store.expire(JOB, (), 0)
    await store.forget_state(JOB)
    await store.expire(JOB, (), 1)
    assert (await store.known(JOB)).last_epoch == 100


async def test_what_a_later_controller_does_not_know_is_kept(pool: Pool) -> None:
    began = record(1, CheckpointState.INPROGRESS)
    await write(pool, replace(began, bytes=7, details={"nodes": []}), replace(began, state=CheckpointState.READY))
    row = await pool.fetchrow("SELECT state, bytes, details FROM checkpoints")
    assert row is not None and tuple(row) == ("ready", 7, '{"nodes": []}')
