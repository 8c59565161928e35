"""What the coordinator decides, one report after the other."""

from __future__ import annotations

import pytest

from penstock.common.errors import ErrorDomain, RetryHint
from penstock.common.ids import Epoch, SavepointId
from penstock.common.program import NodeKey, OperatorKey
from penstock.common.proto.checkpoint_pb2 import OperatorState
from penstock.controller.checkpoints.coordinator import Coordinator, Past, Policy, Unfinished
from penstock.controller.checkpoints.messages import (
    Abandon,
    Action,
    Aim,
    Aimed,
    Begin,
    Begun,
    Fail,
    IntervalChanged,
    MarkReady,
    Part,
    Record,
    Recorded,
    Report,
    SavepointWanted,
    SendCommits,
    StagedCommit,
    TaskCommitted,
    TaskCompleted,
    TaskEnded,
    TaskFinished,
    TaskRefused,
    TimePassed,
    WriteFailed,
    WriteMetadata,
    Written,
)
from penstock.controller.records import Failure, TaskId

IN, OUT = TaskId(NodeKey("in"), 0), TaskId(NodeKey("out"), 0)
STATE = Part((OperatorState(operator_id="op_in"),))
STAGED = Part((OperatorState(operator_id="op_out", commit=b"rows"),))
COMMITS = {OUT: (StagedCommit(OperatorKey("op_out"), b"rows"),)}
FULL = Failure("the disk is full", None, ErrorDomain.EXTERNAL, RetryHint.BACKOFF)
ONE, TWO, THREE = Epoch(1), Epoch(2), Epoch(3)


class Job:
    """A coordinator and its clock."""

    def __init__(self, past: Past | None = None, *, aim: Aim | None = Aim.PERIODIC, retained: int = 1) -> None:
        self.now = 100.0
        policy = Policy(interval_seconds=10, timeout_seconds=60, max_failures=3, retained=retained)
        self.coordinator = Coordinator([IN, OUT], [IN], policy, past or Past(), now=self.now)
        self.first = () if aim is None else self.tell(Aimed(aim))

    def tell(self, *reports: Report) -> tuple[Action, ...]:
        return tuple(action for report in reports for action in self.coordinator.handle(report, self.now))

    def wait(self, seconds: float) -> tuple[Action, ...]:
        self.now += seconds
        return self.tell(TimePassed())

    def collect(self, epoch: Epoch, sink: Part = STAGED) -> tuple[Action, ...]:
        return self.tell(Begun(epoch), TaskCompleted(epoch, IN, STATE), TaskCompleted(epoch, OUT, sink))

    def complete(self, epoch: Epoch) -> tuple[Action, ...]:
        return (
            *self.collect(epoch),
            *self.tell(Written(epoch), Recorded(epoch), TaskCommitted(epoch, OUT)),
        )


def test_a_checkpoint_goes_from_its_row_to_its_commits() -> None:
    job = Job()
    assert job.wait(9) == ()
    assert job.wait(1) == (Begin(ONE, Epoch(0), then_stop=False, savepoint=None),)
    assert job.collect(ONE) == (WriteMetadata(ONE, {IN: STATE, OUT: STAGED}, ended=False),)
    assert job.tell(Written(ONE)) == (Record(ONE, committing=True),)
    assert job.tell(Recorded(ONE)) == (SendCommits(ONE, COMMITS),)
    assert job.tell(TaskCommitted(ONE, OUT)) == (MarkReady(ONE, ONE),)
    assert job.wait(10) == (Begin(TWO, ONE, then_stop=False, savepoint=None),)


def test_without_staged_rows_it_is_ready_once_it_is_recorded() -> None:
    job = Job()
    job.wait(10)
    job.collect(ONE, STATE)
    assert job.tell(Written(ONE), Recorded(ONE)) == (Record(ONE, committing=False), MarkReady(ONE, ONE))


def test_the_first_word_of_a_task_counts() -> None:
    job = Job()
    job.wait(10)
    job.tell(Begun(ONE), TaskCompleted(ONE, OUT, STAGED), TaskCompleted(ONE, OUT, STATE), TaskRefused(ONE, OUT, FULL))
    assert job.tell(TaskCompleted(ONE, IN, STATE)) == (WriteMetadata(ONE, {IN: STATE, OUT: STAGED}, ended=False),)


def test_commits_are_sent_again_to_those_who_have_not_answered() -> None:
    job = Job()
    job.wait(10)
    job.collect(ONE)
    job.tell(Written(ONE), Recorded(ONE))
    assert job.wait(4) == ()
    assert job.wait(1) == (SendCommits(ONE, COMMITS),)
    assert job.wait(4) == ()


def test_a_commit_that_is_never_answered_makes_the_job_start_again() -> None:
    job = Job()
    job.wait(10)
    job.collect(ONE)
    job.tell(Written(ONE), Recorded(ONE))
    (failed, _) = job.wait(60)
    assert isinstance(failed, Fail) and not failed.failure.is_fatal
    assert failed.failure.message == "checkpoint 1 was not committed in time by out/0"


def test_an_epoch_that_takes_too_long_is_abandoned_and_its_late_reports_are_nothing() -> None:
    job = Job()
    job.wait(10)
    job.tell(Begun(ONE), TaskCompleted(ONE, IN, STATE))
    abandoned, begun = job.wait(60)
    assert isinstance(abandoned, Abandon)
    assert abandoned.failure.message == "1 of 2 tasks did not complete checkpoint 1 within 1m"
    assert begun == Begin(TWO, Epoch(0), then_stop=False, savepoint=None)
    assert job.tell(TaskCompleted(ONE, OUT, STAGED), Written(ONE), Recorded(ONE)) == ()


def test_a_row_that_is_not_written_yet_is_waited_for() -> None:
    job = Job()
    job.wait(10)
    assert job.wait(1000) == ()


def test_metadata_that_may_have_been_written_is_not_awaited_for_ever() -> None:
    job = Job()
    job.wait(10)
    job.collect(ONE)
    abandoned, _ = job.wait(60)
    assert isinstance(abandoned, Abandon) and "metadata of checkpoint 1" in abandoned.failure.message


def test_what_is_written_is_never_abandoned() -> None:
    job = Job()
    job.wait(10)
    job.collect(ONE)
    job.tell(Written(ONE))
    assert job.wait(1000) == ()
    assert job.tell(TaskRefused(ONE, IN, FULL), WriteFailed(ONE, FULL)) == ()


def test_failures_in_a_row_fail_the_job_and_a_success_is_a_new_start() -> None:
    job = Job()
    for epoch in (ONE, TWO):
        job.wait(10)
        assert job.tell(Begun(epoch), TaskRefused(epoch, IN, FULL)) == (Abandon(epoch, FULL),)
    job.wait(10)
    job.complete(THREE)
    for epoch in (Epoch(4), Epoch(5)):
        job.wait(10)
        job.collect(epoch)
        assert job.tell(WriteFailed(epoch, FULL)) == (Abandon(epoch, FULL),)
    job.wait(10)
    _, failed = job.tell(Begun(Epoch(6)), TaskRefused(Epoch(6), OUT, FULL))
    assert isinstance(failed, Fail) and failed.failure.is_fatal
    assert failed.failure.message == "3 checkpoints in a row failed: the disk is full"
    assert job.wait(1000) == ()


def test_the_oldest_that_is_kept_follows_the_retention() -> None:
    job = Job(retained=2)
    ready = []
    for epoch in (ONE, TWO, THREE):
        job.wait(10)
        ready.append(job.complete(epoch)[-1])
    assert ready == [MarkReady(ONE, ONE), MarkReady(TWO, ONE), MarkReady(THREE, TWO)]


def test_a_stop_waits_for_the_checkpoint_under_way_and_then_makes_the_last() -> None:
    job = Job()
    job.wait(10)
    assert job.tell(Aimed(Aim.STOP)) == ()
    *_, ready, last = job.complete(ONE)
    assert (ready, last) == (MarkReady(ONE, ONE), Begin(TWO, ONE, then_stop=True, savepoint=None))
    job.complete(TWO)
    assert job.coordinator.outlook.final
    assert job.wait(1000) == () and job.coordinator.next_at is None


def test_a_last_checkpoint_that_fails_is_tried_again_after_a_pause() -> None:
    job = Job(aim=Aim.STOP)
    job.tell(Begun(ONE), TaskRefused(ONE, IN, FULL))
    assert job.coordinator.next_at == job.now + 5
    assert job.wait(4) == ()
    assert job.wait(1) == (Begin(TWO, Epoch(0), then_stop=True, savepoint=None),)


def test_tasks_that_are_gone_without_a_last_checkpoint_make_the_job_start_again() -> None:
    job = Job(aim=Aim.STOP)
    job.tell(Begun(ONE), TaskCompleted(ONE, IN, STATE), TaskFinished(IN))
    abandoned, failed = job.tell(TaskRefused(ONE, OUT, FULL))
    assert abandoned == Abandon(ONE, FULL)
    assert isinstance(failed, Fail) and not failed.failure.is_fatal


@pytest.mark.parametrize(("aim", "ended"), [(Aim.PERIODIC, True), (Aim.DRAIN, False)])
def test_when_all_sources_have_ended_the_last_checkpoint_follows(aim: Aim, ended: bool) -> None:
    job = Job(aim=aim)
    assert job.tell(TaskEnded(OUT)) == ()
    assert job.tell(TaskEnded(IN), TaskEnded(IN)) == (Begin(ONE, Epoch(0), then_stop=True, savepoint=None),)
    (write,) = job.collect(ONE)
    assert isinstance(write, WriteMetadata) and write.ended is ended


def test_a_job_that_drains_makes_no_other_checkpoints_and_one_that_is_killed_none() -> None:
    for aim in (Aim.DRAIN, Aim.NONE):
        job = Job(aim=aim)
        assert job.tell(SavepointWanted(SavepointId.new())) == ()
        assert job.wait(1000) == () and job.coordinator.next_at is None
    assert job.tell(TaskEnded(IN)) == ()


def test_a_savepoint_does_not_wait_for_the_clock_and_is_made_once() -> None:
    job, wanted = Job(), SavepointId.new()
    assert job.tell(SavepointWanted(wanted)) == (Begin(ONE, Epoch(0), then_stop=False, savepoint=wanted),)
    job.tell(SavepointWanted(wanted))
    job.complete(ONE)
    assert job.tell(SavepointWanted(wanted)) == ()
    assert job.wait(10) == (Begin(TWO, ONE, then_stop=False, savepoint=None),)


def test_another_interval_counts_from_the_last_checkpoint() -> None:
    job = Job()
    job.wait(5)
    assert job.coordinator.next_at == 110
    assert job.tell(IntervalChanged(5)) == (Begin(ONE, Epoch(0), then_stop=False, savepoint=None),)


def test_a_restored_checkpoint_is_committed_once_all_tasks_have_started() -> None:
    job = Job(Past(Epoch(9), (Epoch(7),), uncommitted=Epoch(7)), aim=None)
    assert job.tell(Aimed(Aim.NONE)) == ()
    assert job.tell(Aimed(Aim.PERIODIC)) == (MarkReady(Epoch(7), Epoch(7)),)
    assert job.tell(Aimed(Aim.PERIODIC)) == ()
    assert job.wait(10) == (Begin(Epoch(10), Epoch(7), then_stop=False, savepoint=None),)


@pytest.mark.parametrize("then_stop", [False, True])
def test_what_an_earlier_controller_had_written_is_committed(then_stop: bool) -> None:
    past = Past(Epoch(7), (Epoch(6), Epoch(7)), unfinished=Unfinished(Epoch(7), then_stop, COMMITS))
    job = Job(past, aim=None)
    assert job.coordinator.outlook.under_way
    assert job.tell(Aimed(Aim.PERIODIC)) == (Record(Epoch(7), committing=True),)
    assert job.tell(Recorded(Epoch(7))) == (SendCommits(Epoch(7), COMMITS),)
    assert job.tell(TaskCommitted(Epoch(7), OUT)) == (MarkReady(Epoch(7), Epoch(7)),)
    assert job.coordinator.outlook.final is then_stop
