"""What each state decides, by its facts alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.common.errors import ErrorDomain, RetryHint
from penstock.common.ids import Generation
from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.controller.checkpoints.coordinator import Outlook
from penstock.controller.execution import Progress
from penstock.controller.records import Failure, JobStatus
from penstock.controller.states import (
    checkpoint_stopping,
    compiling,
    created,
    draining,
    failed,
    finished,
    finishing,
    recovering,
    rescaling,
    restarting,
    running,
    scheduling,
    stopped,
    stopping,
)
from penstock.controller.states.failures import RestartPolicy, resolve_failure
from penstock.controller.states.machine import Move, Wait
from penstock.controller.testing import job_config

CONFIG = job_config()
STATUS = JobStatus(CONFIG.id, JobState.RUNNING, Generation(1), parallelism=1)
POLICY = RestartPolicy(20, timedelta(milliseconds=500), timedelta(seconds=60))
GOING = Progress(tasks=4, started=4, finished=0, workers=2, workers_ended=0, adopting=False, failure=None)
DONE = replace(GOING, finished=4)
FATAL = Failure("line 3 is not JSON", None, ErrorDomain.USER, RetryHint.NEVER)
PASSING = Failure.lost("gone")
STOPS = [mode for mode in StopMode if mode is not StopMode.NONE]


async def test_created_goes_on_to_compiling() -> None:
    assert await created.run(None) == Move(JobState.COMPILING)


def test_compiling_waits_for_the_program() -> None:
    assert compiling.decide(compiling.Facts(StopMode.NONE, False, None)) == Wait()
    assert compiling.decide(compiling.Facts(StopMode.NONE, True, None)) == Move(JobState.SCHEDULING)
    assert compiling.decide(compiling.Facts(StopMode.NONE, False, FATAL)) == Move(JobState.FAILING, FATAL)
    assert compiling.decide(compiling.Facts(StopMode.FORCE, True, None)) == Move(JobState.STOPPING)


LAUNCHED = scheduling.Facts(CONFIG, STATUS, True, None, GOING, 100.0, timedelta(seconds=90), 10.0)


def test_scheduling_is_over_when_every_task_has_started() -> None:
    assert scheduling.decide(LAUNCHED, POLICY) == Move(JobState.RUNNING, tasks=4)
    waiting = replace(LAUNCHED, progress=replace(GOING, started=3))
    assert scheduling.decide(waiting, POLICY) == Wait(100.0)
    assert scheduling.decide(replace(LAUNCHED, launched=False), POLICY) == Wait(100.0)


def test_scheduling_waits_for_slots_without_a_limit() -> None:
    waiting = replace(LAUNCHED, launched=False, progress=None, deadline=None, now=1e9)
    assert scheduling.decide(waiting, POLICY) == Wait(None)


def test_scheduling_that_takes_too_long_is_tried_again() -> None:
    late = replace(LAUNCHED, progress=replace(GOING, started=1), now=100.0)
    assert scheduling.decide(late, POLICY) == Move(
        JobState.RECOVERING, Failure.lost("3 of 4 tasks did not start within 90s")
    )
    unready = scheduling.decide(replace(late, launched=False), POLICY)
    assert unready == Move(JobState.RECOVERING, Failure.lost("the job's workers were not ready within 90s"))


@pytest.mark.parametrize("mode", STOPS)
def test_scheduling_can_be_stopped_whatever_else_is(mode: StopMode) -> None:
    facts = replace(LAUNCHED, config=replace(CONFIG, stop_mode=mode), failure=FATAL)
    assert scheduling.decide(facts, POLICY) == Move(JobState.STOPPING)


def test_scheduling_follows_what_is_wanted() -> None:
    waiting = replace(LAUNCHED, launched=False)
    rescaled = scheduling.decide(replace(waiting, config=replace(CONFIG, parallelism=2)), POLICY)
    restarted = scheduling.decide(replace(waiting, config=replace(CONFIG, restart_nonce=1)), POLICY)
    assert (rescaled, restarted) == (Move(JobState.RESCALING), Move(JobState.RESTARTING))
    assert scheduling.decide(replace(waiting, failure=PASSING), POLICY) == Move(JobState.RECOVERING, PASSING)


WELL = running.Facts(CONFIG, STATUS, GOING, is_evicted=False, healthy_at=60.0, now=10.0)


def test_running_waits_for_what_happens_and_not_for_the_clock() -> None:
    assert running.decide(WELL, POLICY) == Wait()


def test_running_forgets_restarts_only_after_a_while() -> None:
    restarted = replace(WELL, status=replace(STATUS, restarts=1))
    assert running.decide(restarted, POLICY) == Wait(60.0)
    assert running.decide(replace(restarted, now=60.0), POLICY) == running.Heal()


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (replace(WELL, progress=DONE), JobState.FINISHING),
        (replace(WELL, config=replace(CONFIG, stop_mode=StopMode.CHECKPOINT)), JobState.CHECKPOINT_STOPPING),
        (replace(WELL, config=replace(CONFIG, stop_mode=StopMode.GRACEFUL)), JobState.STOPPING),
        (replace(WELL, config=replace(CONFIG, stop_mode=StopMode.IMMEDIATE)), JobState.STOPPING),
        (replace(WELL, config=replace(CONFIG, stop_mode=StopMode.FORCE)), JobState.STOPPING),
        (replace(WELL, progress=replace(GOING, failure=PASSING)), JobState.RECOVERING),
        (replace(WELL, progress=replace(GOING, failure=FATAL)), JobState.FAILING),
        (replace(WELL, config=replace(CONFIG, restart_nonce=1)), JobState.RESTARTING),
        (replace(WELL, config=replace(CONFIG, parallelism=2)), JobState.RESCALING),
        (replace(WELL, is_evicted=True), JobState.RESTARTING),
        (replace(WELL, is_evicted=True, config=replace(CONFIG, parallelism=2)), JobState.RESCALING),
        (replace(WELL, is_evicted=True, progress=DONE), JobState.FINISHING),
        (replace(WELL, progress=DONE, config=replace(CONFIG, stop_mode=StopMode.FORCE)), JobState.FINISHING),
    ],
)
def test_running_goes_where_facts_lead(facts: running.Facts, state: JobState) -> None:
    move = running.decide(facts, POLICY)
    assert isinstance(move, Move) and move.to is state


def test_failures_are_retried_within_the_budget() -> None:
    assert resolve_failure(PASSING, 19, POLICY).to is JobState.RECOVERING
    given_up = resolve_failure(PASSING, 20, POLICY)
    assert given_up.to is JobState.FAILING
    assert given_up.failure is not None and given_up.failure.message == "gave up after 20 restarts: gone"
    assert resolve_failure(FATAL, 0, POLICY) == Move(JobState.FAILING, FATAL)


def test_a_mistake_of_the_user_is_fatal_whatever_its_hint_says() -> None:
    assert replace(FATAL, retry=RetryHint.BACKOFF).is_fatal


def test_the_first_restart_is_at_once_and_the_wait_before_others_doubles_up_to_a_limit() -> None:
    waits = [POLICY.delay_seconds(restarts) for restarts in (0, 1, 2, 3, 4, 8, 9, 10, 10_000)]
    assert waits == [0, 0, 0.5, 1, 2, 32, 60, 60, 60]


ASKED = draining.Facts(StopMode.GRACEFUL, StopMode.GRACEFUL, None, None, GOING, now=10.0)


def test_draining_asks_once_and_again_only_harder() -> None:
    assert draining.decide(replace(ASKED, asked=None)) == draining.Ask(StopMode.GRACEFUL)
    assert draining.decide(ASKED) == Wait(None)
    harder = replace(ASKED, mode=StopMode.IMMEDIATE)
    assert draining.decide(harder) == draining.Ask(StopMode.IMMEDIATE)
    assert draining.decide(replace(harder, asked=StopMode.IMMEDIATE, mode=StopMode.GRACEFUL)) == Wait(None)


def test_draining_asks_again_who_was_not_reached() -> None:
    assert draining.decide(replace(ASKED, retry_at=11.0)) == Wait(11.0)
    assert draining.decide(replace(ASKED, retry_at=11.0, kill_at=10.5)) == Wait(10.5)
    assert draining.decide(replace(ASKED, retry_at=11.0, now=11.0)) == draining.Ask(StopMode.GRACEFUL)


def test_draining_kills_when_forced_or_when_time_is_up() -> None:
    assert draining.decide(replace(ASKED, mode=StopMode.FORCE)) == draining.Close(force=True)
    assert draining.decide(replace(ASKED, kill_at=10.0)) == draining.Close(force=True)
    assert draining.decide(replace(ASKED, kill_at=10.1)) == Wait(10.1)


def test_draining_is_over_when_no_worker_is_left_or_expected() -> None:
    over = replace(ASKED, progress=replace(DONE, workers_ended=2))
    assert draining.decide(over) == draining.Close(force=False)
    assert draining.decide(replace(ASKED, progress=None)) == draining.Close(force=False)
    returning = replace(GOING, workers=0, adopting=True)
    assert draining.decide(replace(ASKED, progress=returning)) == Wait(None)


SAVING = replace(DONE, workers_ended=2, checkpoints=Outlook(under_way=True, final=False))
SAVED = replace(SAVING, checkpoints=Outlook(under_way=False, final=True))


@pytest.mark.parametrize("mode", [StopMode.CHECKPOINT, StopMode.GRACEFUL])
def test_draining_is_not_over_before_the_last_checkpoint_is(mode: StopMode) -> None:
    facts = replace(ASKED, mode=mode, asked=mode)
    assert draining.decide(replace(facts, progress=SAVING)) == Wait(None)
    assert draining.decide(replace(facts, progress=SAVED)) == draining.Close(force=False)
    failed = replace(SAVING, failure=PASSING)
    assert draining.decide(replace(facts, progress=failed)) == draining.Close(force=False)


def test_draining_waits_for_no_checkpoint_that_cannot_come_or_is_not_wanted() -> None:
    failed = replace(GOING, failure=PASSING, checkpoints=Outlook(under_way=True, final=False))
    saving = replace(ASKED, mode=StopMode.CHECKPOINT, asked=StopMode.CHECKPOINT)
    assert draining.decide(replace(saving, progress=failed)) == draining.Close(force=True)
    assert draining.decide(replace(saving, progress=replace(failed, checkpoints=None))) == Wait(None)
    at_once = replace(ASKED, mode=StopMode.IMMEDIATE, asked=StopMode.IMMEDIATE)
    assert draining.decide(replace(at_once, progress=SAVING)) == draining.Close(force=False)


def test_a_stop_with_a_checkpoint_can_get_harsher() -> None:
    asked = replace(ASKED, asked=StopMode.CHECKPOINT)
    assert draining.decide(asked) == draining.Ask(StopMode.GRACEFUL)
    assert draining.decide(replace(asked, mode=StopMode.CHECKPOINT)) == Wait(None)


def test_with_checkpoints_a_job_is_done_when_the_last_is_committed() -> None:
    saving = replace(WELL, progress=SAVING)
    assert running.decide(saving, POLICY) == Wait()
    saved = replace(WELL, progress=replace(GOING, checkpoints=Outlook(under_way=False, final=True)))
    assert running.decide(saved, POLICY) == Move(JobState.FINISHING)


def test_stopping_tells_of_rows_that_it_had_promised_to_deliver() -> None:
    assert stopping.decide(stopping.Facts(StopMode.GRACEFUL, None)) == Move(JobState.STOPPED)
    assert stopping.decide(stopping.Facts(StopMode.GRACEFUL, FATAL)) == Move(JobState.FAILING, FATAL)
    assert stopping.decide(stopping.Facts(StopMode.GRACEFUL, PASSING)) == Move(JobState.STOPPED, PASSING)
    for mode in (StopMode.IMMEDIATE, StopMode.FORCE):
        assert stopping.decide(stopping.Facts(mode, FATAL)) == Move(JobState.STOPPED)


def test_a_stop_that_is_taken_back_is_carried_through() -> None:
    assert stopping.derive_mode(StopMode.NONE) is StopMode.GRACEFUL


def test_checkpoint_stopping_ends_in_stopped_unless_more_is_wanted_or_it_failed() -> None:
    facts = checkpoint_stopping.Facts
    assert checkpoint_stopping.decide(facts(True, None)) == Move(JobState.STOPPING)
    assert checkpoint_stopping.decide(facts(False, None)) == Move(JobState.STOPPED)
    assert checkpoint_stopping.decide(facts(False, FATAL)) == Move(JobState.FAILING, FATAL)


def test_rescaling_and_restarting_lead_back_to_scheduling() -> None:
    assert rescaling.decide(rescaling.Facts(False, PASSING)) == Move(JobState.SCHEDULING)
    assert rescaling.decide(rescaling.Facts(False, FATAL)) == Move(JobState.FAILING, FATAL)
    assert rescaling.decide(rescaling.Facts(True, None)) == Move(JobState.STOPPING)
    assert restarting.decide(restarting.Facts(False)) == Move(JobState.SCHEDULING)
    assert restarting.decide(restarting.Facts(True)) == Move(JobState.STOPPING)


def test_a_safe_restart_saves_the_job_and_a_forced_one_does_not() -> None:
    assert restarting.derive_mode(CONFIG, RestartMode.SAFE) is StopMode.CHECKPOINT
    assert restarting.derive_mode(CONFIG, RestartMode.FORCE) is StopMode.IMMEDIATE
    for mode in RestartMode:
        assert restarting.derive_mode(replace(CONFIG, stop_mode=StopMode.GRACEFUL), mode) is None


def test_a_restart_that_nobody_asked_for_is_safe_however_an_earlier_one_was() -> None:
    forced = replace(CONFIG, restart_mode=RestartMode.FORCE)
    assert restarting.derive_restart_mode(forced, STATUS) is RestartMode.SAFE
    assert restarting.derive_restart_mode(forced, STATUS, RestartMode.FORCE) is RestartMode.FORCE
    assert restarting.derive_restart_mode(replace(forced, restart_nonce=1), STATUS) is RestartMode.FORCE
    assert restarting.derive_restart_mode(CONFIG, STATUS, RestartMode.FORCE) is RestartMode.FORCE


def test_recovering_waits_unless_something_is_wanted() -> None:
    facts = recovering.Facts(CONFIG, STATUS, due_at=20.0, now=10.0)
    assert recovering.decide(facts) == Wait(20.0)
    assert recovering.decide(replace(facts, now=20.0)) == Move(JobState.COMPILING)
    assert recovering.decide(replace(facts, config=replace(CONFIG, restart_nonce=1))) == Move(JobState.COMPILING)
    assert recovering.decide(replace(facts, config=replace(CONFIG, stop_mode=StopMode.FORCE))) == Move(
        JobState.STOPPING
    )


def test_finishing_waits_for_workers_but_not_for_ever() -> None:
    facts = finishing.Facts(DONE, due_at=20.0, now=10.0)
    assert finishing.decide(facts) == Wait(20.0)
    assert finishing.decide(replace(facts, now=20.0)) == Move(JobState.FINISHED)
    assert finishing.decide(replace(facts, progress=replace(DONE, workers_ended=2))) == Move(JobState.FINISHED)


def test_what_is_at_rest_moves_only_when_asked() -> None:
    still = replace(CONFIG, stop_mode=StopMode.GRACEFUL)
    assert stopped.decide(still, STATUS) is None
    assert stopped.decide(CONFIG, STATUS) == Move(JobState.COMPILING)
    assert failed.decide(CONFIG, STATUS) is None
    assert failed.decide(replace(CONFIG, restart_nonce=1), STATUS) == Move(JobState.COMPILING)
    assert finished.decide(replace(CONFIG, restart_nonce=1), STATUS) is None
