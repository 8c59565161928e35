from __future__ import annotations

from penstock.common.errors import ErrorDomain, RetryHint
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.common.program import NodeKey
from penstock.controller.execution import Execution
from penstock.controller.records import Failure, TaskId, TaskOwner
from penstock.controller.testing import pipeline_program

A, B = WorkerId.new(), WorkerId.new()
IN0, OUT0 = TaskId(NodeKey("in"), 0), TaskId(NodeKey("out"), 0)
IN1, OUT1 = TaskId(NodeKey("in"), 1), TaskId(NodeKey("out"), 1)
FATAL = Failure("bad line", None, ErrorDomain.USER, RetryHint.NEVER)


def execution() -> Execution:
    made = Execution(TaskOwner(JobId.new(), Generation(1)), pipeline_program().at_parallelism(2))
    made.assign(A, [IN0, OUT0])
    made.assign(B, [IN1, OUT1])
    return made


def test_reports_may_come_twice_and_of_tasks_that_do_not_exist() -> None:
    going = execution()
    for task in (IN0, IN0, TaskId(NodeKey("other"), 0), TaskId(NodeKey("in"), 9)):
        going.record_started(task)
    assert going.progress.started == 1


def test_a_task_that_finished_has_started() -> None:
    going = execution()
    for task in going.tasks:
        going.record_finished(task)
    assert going.progress.all_started and going.progress.all_finished


def test_a_worker_that_ends_with_its_tasks_done_is_no_failure() -> None:
    going = execution()
    going.record_finished(IN0)
    going.record_finished(OUT0)
    going.record_ended(A)
    assert going.progress.failure is None
    assert going.live_workers == (B,)


def test_a_worker_that_leaves_tasks_behind_is_a_failure_that_may_pass() -> None:
    going = execution()
    going.record_finished(IN0)
    going.record_ended(A)
    failure = going.progress.failure
    assert failure is not None and not failure.is_fatal
    assert failure.message == f"lost worker {A}: it ended before 1 of its tasks did"


def test_a_worker_that_is_gone_before_it_is_known_is_a_failure_once_it_is() -> None:
    going = Execution(TaskOwner(JobId.new(), Generation(1)), pipeline_program().at_parallelism(1))
    going.record_ended(A, "its process ended")
    assert going.progress.failure is None
    going.assign(A, [IN0])
    assert going.progress.failure == Failure.lost(f"lost worker {A}: its process ended")
    assert going.progress.all_ended


def test_the_first_failure_counts_unless_a_fatal_one_follows() -> None:
    going = execution()
    first = Failure.lost("first")
    going.record_failure(first)
    going.record_failure(Failure.lost("second"))
    assert going.progress.failure == first
    going.record_failure(FATAL)
    going.record_failure(Failure.lost("third"))
    assert going.progress.failure == FATAL


def test_workers_that_were_never_told_to_start_are_over_without_a_failure() -> None:
    going = execution()
    going.command(A)
    going.discard_idle()
    assert going.live_workers == (A,)
    assert going.progress.failure is None


def test_one_that_waits_for_workers_to_come_back_has_not_ended() -> None:
    returning = Execution(TaskOwner(JobId.new(), Generation(1)), pipeline_program().at_parallelism(1), adopting=True)
    assert not returning.progress.all_ended
    assert returning.missing_tasks == 2
    returning.assign(A, [IN0])
    returning.record_finished(OUT0)
    assert returning.missing_tasks == 0
