"""The coordinator in a world that loses, repeats and reorders what it hears, fails writes and crashes controllers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.common.checkpoint.paths import checkpoint_path, metadata_path, table_path
from penstock.common.errors import ErrorDomain, RetryHint
from penstock.common.ids import Epoch, SavepointId
from penstock.common.program import NodeKey, OperatorKey
from penstock.common.proto.checkpoint_pb2 import OperatorState, StateFile, TableState
from penstock.controller.checkpoints.coordinator import Coordinator, Past, Policy, Unfinished
from penstock.controller.checkpoints.garbage import derive_garbage, derive_kept
from penstock.controller.checkpoints.messages import (
    Abandon,
    Action,
    Aim,
    Aimed,
    Begin,
    Begun,
    Fail,
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
    TaskRefused,
    TimePassed,
    WriteFailed,
    WriteMetadata,
    Written,
    derive_commits,
)
from penstock.controller.records import Failure, TaskId

SOURCES = [TaskId(NodeKey("in"), 0), TaskId(NodeKey("in"), 1)]
SINKS = [TaskId(NodeKey("out"), 0), TaskId(NodeKey("out"), 1)]
TASKS = [*SOURCES, *SINKS]
OPERATOR = OperatorKey("op")
FULL = Failure("the disk is full", None, ErrorDomain.EXTERNAL, RetryHint.BACKOFF)
RETAINED = 2
PICK = st.integers(0, 1000)


@dataclass(slots=True)
class Snapshot:
    """What an epoch's metadata says."""

    files: frozenset[str]
    commits: dict[TaskId, tuple[StagedCommit, ...]]
    then_stop: bool


class World(RuleBasedStateMachine):
    """`rows` and `storage` outlive a controller; `work` does not, and `mail` is on its way to whichever there is."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.rows: dict[Epoch, str] = {}
        self.storage: set[str] = set()
        self.metadata: dict[Epoch, Snapshot] = {}
        self.savepoints: dict[SavepointId, frozenset[str]] = {}
        self.savepoint_of: dict[Epoch, SavepointId] = {}
        self.files_of: dict[TaskId, tuple[str, ...]] = {task: () for task in TASKS}
        self.then_stop: dict[Epoch, bool] = {}
        self.heard: dict[Epoch, dict[TaskId, Part]] = {}
        self.committed: dict[Epoch, set[TaskId]] = {}
        self.sent: dict[tuple[Epoch, TaskId], tuple[StagedCommit, ...]] = {}
        self.ready: list[Epoch] = []
        self.mail: list[Report] = []
        self.work: list[Callable[[bool, bool], None]] = []
        self.failed = False

    @initialize(failures=st.integers(1, 4))
    def start(self, failures: int) -> None:
        self.policy = Policy(interval_seconds=10, timeout_seconds=30, max_failures=failures, retained=RETAINED)
        self.take_over()

    def take_over(self) -> None:
        """What a new controller finds: rows, and metadata of an epoch that nobody has said is complete."""
        self.work.clear()
        self.failed = False
        unfinished = None
        for epoch, state in sorted(self.rows.items()):
            if state == "inprogress" and epoch not in self.metadata:
                self.rows[epoch] = "abandoned"
            elif state in {"inprogress", "committing"}:
                snapshot = self.metadata[epoch]
                unfinished = Unfinished(epoch, snapshot.then_stop, snapshot.commits)
        final = [e for e in self.ready if self.then_stop[e]]
        past = Past(
            last_epoch=max(self.rows, default=Epoch(0)),
            completed=tuple(sorted(e for e, state in self.rows.items() if state in {"committing", "ready"})),
            unfinished=unfinished,
            final=final[-1] if final else None,
        )
        self.coordinator = Coordinator(TASKS, SOURCES, self.policy, past, now=self.now)
        self.tell(Aimed(Aim.PERIODIC))

    def tell(self, report: Report) -> None:
        if isinstance(report, TaskCompleted) and self.coordinator.current == report.epoch:
            self.heard.setdefault(report.epoch, {}).setdefault(report.task, report.part)
        if isinstance(report, TaskCommitted):
            self.committed.setdefault(report.epoch, set()).add(report.task)
        for action in self.coordinator.handle(report, self.now):
            self.do(action)

    # What it asks for, and what must hold when it does

    def do(self, action: Action) -> None:
        match action:
            case Begin(epoch, min_epoch, then_stop, savepoint):
                assert "inprogress" not in self.rows.values(), "another is under way"
                assert epoch > max(self.rows, default=Epoch(0))
                assert all(e >= min_epoch for e in self.kept())
                self.then_stop[epoch] = then_stop
                if savepoint is not None:
                    self.savepoint_of[epoch] = savepoint
                self.work.append(lambda fails, done: self.begin(epoch))
            case WriteMetadata(epoch, parts, _):
                assert self.rows[epoch] == "inprogress"
                assert set(parts) == set(TASKS) and dict(parts) == self.heard[epoch]
                self.work.append(lambda fails, done: self.write(epoch, dict(parts), fails, done))
            case Record(epoch, committing):
                assert epoch in self.metadata and committing == bool(self.metadata[epoch].commits)
                self.work.append(lambda fails, done: self.record(epoch, committing))
            case SendCommits(epoch, commits):
                assert self.rows[epoch] == "committing"
                for task, data in commits.items():
                    assert data == self.metadata[epoch].commits[task]
                    assert self.sent.setdefault((epoch, task), data) == data
                self.mail += [TaskCommitted(epoch, task) for task in commits]
            case MarkReady(epoch, min_epoch):
                assert self.rows[epoch] in {"committing", "ready"}
                assert self.committed.get(epoch, set()) >= self.metadata[epoch].commits.keys()
                self.rows[epoch] = "ready"
                self.ready.append(epoch)
                savepoint = self.savepoint_of.get(epoch)
                if savepoint is not None:
                    self.savepoints[savepoint] = self.metadata[epoch].files
                assert min_epoch == self.kept()[0]
            case Abandon(epoch, _):
                assert self.rows[epoch] == "inprogress"
                # What is being written may still arrive, and must not matter.
                self.rows[epoch] = "abandoned"
            case Fail():
                self.failed = True

    def begin(self, epoch: Epoch) -> None:
        self.rows[epoch] = "inprogress"
        self.mail += [TaskCompleted(epoch, task, self.part(epoch, task)) for task in TASKS]
        self.tell(Begun(epoch))

    def part(self, epoch: Epoch, task: TaskId) -> Part:
        """What a task writes: a file, beside older ones that it has written whatever became of their epochs."""
        file = table_path(checkpoint_path(epoch), OPERATOR, task.node, task.subtask)
        self.storage.add(file)
        self.files_of[task] = (*self.files_of[task][-2:], file)
        tables = [TableState(name="table", files=[StateFile(path=path) for path in self.files_of[task]])]
        if task in SOURCES:
            return Part((OperatorState(operator_id=OPERATOR, tables=tables),))
        return Part((OperatorState(operator_id=OPERATOR, tables=tables, commit=f"{task} {epoch}".encode()),))

    def write(self, epoch: Epoch, parts: dict[TaskId, Part], fails: bool, done: bool) -> None:
        """A write that fails may have been done all the same."""
        if not fails or done:
            files = {file.path for part in parts.values() for file in part.operators[0].tables[0].files}
            own = metadata_path(checkpoint_path(epoch))
            self.storage.add(own)
            self.metadata[epoch] = Snapshot(
                frozenset({*files, own}), dict(derive_commits(parts)), self.then_stop[epoch]
            )
        self.tell(WriteFailed(epoch, FULL) if fails else Written(epoch))

    def record(self, epoch: Epoch, committing: bool) -> None:
        self.rows[epoch] = "committing" if committing else "ready"
        self.tell(Recorded(epoch))

    def kept(self) -> tuple[Epoch, ...]:
        return derive_kept((e for e, state in self.rows.items() if state in {"committing", "ready"}), RETAINED)

    @rule()
    def collect(self) -> None:
        """In the background: at any time, also while another epoch is under way."""
        kept = self.kept()
        for epoch, state in self.rows.items():
            if state == "ready" and epoch not in kept:
                self.rows[epoch] = "deleted"
        needed = frozenset().union(*(self.metadata[e].files for e in kept), *self.savepoints.values())
        self.storage -= set(derive_garbage(sorted(self.storage), kept, needed))

    # What happens

    @rule(seconds=st.sampled_from([0.5, 5, 10, 31]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.tell(TimePassed())

    @precondition(lambda self: self.work)
    @rule(fails=st.integers(0, 4), done=st.booleans())
    def work_on(self, fails: int, done: bool) -> None:
        self.work.pop(0)(fails == 0, done)

    @precondition(lambda self: self.mail)
    @rule(which=PICK, again=st.booleans())
    def deliver(self, which: int, again: bool) -> None:
        report = self.mail[which % len(self.mail)]
        if not again:
            self.mail.remove(report)
        self.tell(report)

    def deliver_otherwise(self, which: int) -> None:
        """A task that says something else the second time, or even the first: what was heard first counts."""
        report = self.mail[which % len(self.mail)] if self.mail else None
        if isinstance(report, TaskCompleted) and report.task in SINKS:
            state = report.part.operators[0]
            other = OperatorState(operator_id=OPERATOR, tables=state.tables, commit=state.commit + b" again")
            self.tell(TaskCompleted(report.epoch, report.task, Part((other,))))

    @precondition(lambda self: self.mail)
    @rule(which=PICK)
    def lose(self, which: int) -> None:
        self.mail.pop(which % len(self.mail))

    @precondition(lambda self: self.rows)
    @rule(which=PICK, task=st.sampled_from(TASKS))
    def refuse(self, which: int, task: TaskId) -> None:
        self.tell(TaskRefused(sorted(self.rows)[which % len(self.rows)], task, FULL))

    @rule(
        what=st.one_of(
            st.sampled_from(Aim).map(Aimed),
            st.sampled_from(SOURCES).map(TaskEnded),
            st.builds(lambda: SavepointWanted(SavepointId.new())),
            st.just("crash"),
        )
    )
    def disturb(self, what: Any) -> None:
        if what == "crash":
            self.take_over()
        else:
            self.tell(what)

    @rule(random=st.randoms(use_true_random=False), said_twice=st.booleans())
    def go_on(self, random: Random, said_twice: bool) -> None:
        """Things go their way for a while, each in its own order."""
        while self.work:
            self.work.pop(0)(False, True)
        random.shuffle(self.mail)
        if said_twice:
            self.deliver_otherwise(random.randrange(1000))
        self.deliver_all()

    def deliver_all(self) -> None:
        mail, self.mail = self.mail, []
        for report in mail:
            self.tell(report)

    @invariant()
    def what_is_kept_is_whole(self) -> None:
        for epoch in self.kept():
            assert self.metadata[epoch].files <= self.storage
        for files in self.savepoints.values():
            assert files <= self.storage

    @invariant()
    def one_is_under_way(self) -> None:
        assert [*self.rows.values()].count("inprogress") <= 1
        assert [*self.rows.values()].count("committing") <= 1

    def teardown(self) -> None:
        """Once nothing is lost any more, there is another checkpoint, or there is nothing left to be saved."""
        if not hasattr(self, "coordinator"):
            return
        before = len(self.ready)
        self.calm(before)
        if self.failed:
            # By what was lost before; a controller that has not seen that goes on.
            self.take_over()
            self.calm(before)
        assert len(self.ready) > before or self.coordinator.outlook.final

    def calm(self, before: int) -> None:
        self.tell(Aimed(Aim.PERIODIC))
        for _ in range(60):
            if self.failed or self.coordinator.outlook.final or len(self.ready) > before:
                break
            while self.work or self.mail:
                while self.work:
                    self.work.pop(0)(False, True)
                self.deliver_all()
            self.now += 10
            self.tell(TimePassed())


TestWorld: Any = World.TestCase
TestWorld.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestWorld = pytest.mark.timeout(280)(TestWorld)
