from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock.common.database import Pool
from penstock.common.errors import InternalError
from penstock.common.ids import Generation, JobId
from penstock.common.jobs import JobState
from penstock.common.proto.jobs_pb2 import JobState as ProtoJobState
from penstock.controller.journal import WriteJournal
from penstock.controller.records import EventKind, Failure, JobStatus
from penstock.controller.states.machine import DURABLE_FIRST, TRANSITIONS, Machine, Move, derive_status
from penstock.controller.testing import MemoryStore, job_config, wall_clock

CONFIG = job_config(parallelism=3, restart_nonce=5)


class Silent:
    def moved(self, before: JobStatus, after: JobStatus, duration_seconds: float) -> None: ...


def machine(store: MemoryStore) -> tuple[Machine, WriteJournal]:
    journal = WriteJournal(store, lambda entry: None)
    return Machine(journal, Silent(), wall_clock), journal


def status(state: JobState, **changes: int) -> JobStatus:
    return JobStatus(CONFIG.id, state, Generation(changes.pop("generation", 1)), **changes)  # type: ignore[arg-type]


async def test_table_proto_and_postgres_have_the_same_states(pool: Pool) -> None:
    table = {state.value for state in TRANSITIONS}
    rows = await pool.fetch("SELECT unnest(enum_range(NULL::job_state))::text AS state")
    proto = {name.removeprefix("JOB_STATE_").lower() for name in ProtoJobState.DESCRIPTOR.values_by_name} - {
        "unspecified"
    }
    assert table == {state.value for state in JobState} == {row["state"] for row in rows} == proto


def test_only_what_is_at_rest_or_over_has_no_way_to_fail() -> None:
    without = {state for state, targets in TRANSITIONS.items() if JobState.FAILING not in targets}
    assert without == {JobState.FAILING, JobState.STOPPED, JobState.FINISHED, JobState.FAILED}


def test_every_state_can_be_reached_and_every_job_can_come_to_rest() -> None:
    assert frozenset().union(*TRANSITIONS.values()) == set(JobState) - {JobState.CREATED}
    resting = {state for state in JobState if state.is_terminal}
    while more := {s for s, targets in TRANSITIONS.items() if s not in resting and targets & resting}:
        resting |= more
    assert resting == set(JobState)


@pytest.mark.parametrize("state", list(JobState))
async def test_a_move_that_is_not_in_the_table_is_refused(state: JobState) -> None:
    store = MemoryStore()
    mover, journal = machine(store)
    for target in set(JobState) - TRANSITIONS[state]:
        with pytest.raises(InternalError, match="cannot go from"):
            await mover.move(CONFIG, status(state), Move(target), after_seconds=0)
    assert journal.waiting == 0


async def test_a_generation_is_begun_only_once_it_is_written() -> None:
    store = MemoryStore()
    store.away = True
    mover, journal = machine(store)
    writing = asyncio.create_task(journal.run())
    moving = asyncio.create_task(
        mover.move(CONFIG, status(JobState.COMPILING), Move(JobState.SCHEDULING), after_seconds=0)
    )
    done, _ = await asyncio.wait({moving}, timeout=0.3)
    assert not done
    store.away = False
    after = await asyncio.wait_for(moving, 5)
    assert store.statuses[CONFIG.id] == after
    writing.cancel()


async def test_other_moves_do_not_wait_for_postgres_and_are_written_in_their_order() -> None:
    store = MemoryStore()
    store.away = True
    mover, journal = machine(store)
    now = status(JobState.RUNNING)
    for state in (JobState.FINISHING, JobState.FINISHED):
        assert state not in DURABLE_FIRST
        now = await mover.move(CONFIG, now, Move(state), after_seconds=0)
    writing = asyncio.create_task(journal.run())
    store.away = False
    await asyncio.wait_for(journal.flushed(), 5)
    assert [entry.status.state for entry in store.entries if entry.status] == [JobState.FINISHING, JobState.FINISHED]
    writing.cancel()


async def test_a_failure_is_told_once_beside_the_state() -> None:
    store = MemoryStore()
    mover, journal = machine(store)
    writing = asyncio.create_task(journal.run())
    failure = Failure.lost("gone")
    await mover.move(CONFIG, status(JobState.RUNNING), Move(JobState.RECOVERING, failure), after_seconds=0)
    await asyncio.wait_for(journal.flushed(), 5)
    (entry,) = store.entries
    assert [(event.kind, event.failure) for event in entry.events] == [
        (EventKind.ERROR, failure),
        (EventKind.STATE, None),
    ]
    writing.cancel()


def after(before: JobStatus, move: Move) -> JobStatus:
    return derive_status(CONFIG, before, move, wall_clock())


def test_scheduling_begins_a_generation_as_it_is_wanted_now() -> None:
    began = after(status(JobState.COMPILING, generation=4, parallelism=1), Move(JobState.SCHEDULING))
    assert (began.generation, began.parallelism, began.restart_nonce) == (5, 3, 5)


def test_running_clears_the_failure_and_remembers_the_first_start() -> None:
    recovered = JobStatus(CONFIG.id, JobState.SCHEDULING, failure=Failure.lost("gone"))
    first = after(recovered, Move(JobState.RUNNING, tasks=6))
    assert (first.failure, first.tasks) == (None, 6)
    again = derive_status(
        CONFIG,
        JobStatus(CONFIG.id, JobState.SCHEDULING, started_at=first.started_at),
        Move(JobState.RUNNING),
        wall_clock() + timedelta(hours=1),
    )
    assert again.started_at == first.started_at


def test_recovering_counts_and_a_wanted_start_counts_anew() -> None:
    failure = Failure.lost("gone")
    recovering = after(status(JobState.RUNNING, restarts=2), Move(JobState.RECOVERING, failure))
    assert (recovering.restarts, recovering.failure) == (3, failure)
    assert after(status(JobState.RUNNING, restarts=2), Move(JobState.RESTARTING)).restarts == 0
    failed = JobStatus(JobId.new(), JobState.FAILED, restarts=20, failure=failure, finished_at=wall_clock())
    again = after(failed, Move(JobState.COMPILING))
    assert (again.restarts, again.failure, again.finished_at) == (0, None, None)
