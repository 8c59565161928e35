"""One generation of a job on its workers: which task runs where, and how far each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.common.ids import WorkerId
from penstock.common.program import ConnectorSink, NodeKey, Program
from penstock.controller.checkpoints.coordinator import Outlook
from penstock.controller.records import Failure, TaskId, TaskOwner, tasks_of


@dataclass(frozen=True, slots=True)
class Progress:
    """The facts of an execution that states decide by."""

    tasks: int
    started: int
    finished: int
    workers: int
    workers_ended: int
    adopting: bool
    failure: Failure | None
    checkpoints: Outlook | None = None
    """None of an execution without checkpoints."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left of the job: with checkpoints, when the last is committed."""
        return self.all_finished if self.checkpoints is None else self.checkpoints.final

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is under way."""
        return self.checkpoints is not None and self.checkpoints.under_way

    @property
    def all_started(self) -> bool:
        return self.started == self.tasks

    @property
    def all_finished(self) -> bool:
        return self.finished == self.tasks

    @property
    def all_ended(self) -> bool:
        """Whether no worker is left, nor one to be expected back."""
        return self.workers_ended == self.workers and not self.adopting


class Execution:
    """What workers have reported of one generation. Reports may come twice and in any order.

    `adopting` is one that an earlier controller started, whose workers are still coming back.
    """

    def __init__(self, owner: TaskOwner, program: Program, *, adopting: bool = False) -> None:
        self.owner = owner
        self.program = program
        self.adopting = adopting
        self.tasks = frozenset(tasks_of(program))
        self._workers: dict[WorkerId, frozenset[TaskId]] = {}
        self._commanded: set[WorkerId] = set()
        self._started: set[TaskId] = set()
        self._finished: set[TaskId] = set()
        self._ended: dict[WorkerId, str | None] = {}
        self._failure: Failure | None = None

    @property
    def workers(self) -> Mapping[WorkerId, frozenset[TaskId]]:
        """Every worker of the generation, with its tasks."""
        return self._workers

    @property
    def live_workers(self) -> tuple[WorkerId, ...]:
        return tuple(worker for worker in self._workers if worker not in self._ended)

    @property
    def progress(self) -> Progress:
        return Progress(
            tasks=len(self.tasks),
            started=len(self._started),
            finished=len(self._finished),
            workers=len(self._workers),
            workers_ended=len(self._ended.keys() & self._workers.keys()),
            adopting=self.adopting,
            failure=self._failure,
        )

    @property
    def missing_tasks(self) -> int:
        """How many tasks have neither ended nor a worker."""
        return len(self.tasks - self._finished.union(*self._workers.values()))

    def sink_of(self, table: str) -> NodeKey | None:
        """The node that writes a table."""
        for node in self.program.nodes:
            kind = node.operators[-1].kind
            if isinstance(kind, ConnectorSink) and kind.table == table:
                return node.key
        return None

    def assign(self, worker: WorkerId, tasks: Iterable[TaskId]) -> None:
        self._workers[worker] = frozenset(tasks) & self.tasks
        if worker in self._ended:
            self._blame(worker)

    def command(self, worker: WorkerId) -> None:
        """A worker has been told, or may have been told, to start its tasks."""
        self._commanded.add(worker)

    def discard_idle(self) -> None:
        """Workers that were never told to start have nothing to stop."""
        for worker in self.live_workers:
            if worker not in self._commanded:
                self.discard(worker)

    def discard(self, worker: WorkerId) -> None:
        """A worker has nothing of this execution, and nothing is to be expected of it."""
        self._workers[worker] = frozenset()
        self._ended[worker] = None

    def record_started(self, task: TaskId) -> None:
        if task in self.tasks:
            self._started.add(task)

    def record_finished(self, task: TaskId) -> None:
        # That it has started can be learnt later, or never when a controller came back in between.
        if task in self.tasks:
            self._started.add(task)
            self._finished.add(task)

    def record_failure(self, failure: Failure) -> None:
        """The first counts, since others follow from it; but a fatal one says more than one that may pass."""
        if self._failure is None or (failure.is_fatal and not self._failure.is_fatal):
            self._failure = failure

    def record_ended(self, worker: WorkerId, reason: str | None = None) -> None:
        """A worker is gone, well or not: one that leaves tasks behind is a failure. It may be gone before it is known
        to be one of this execution."""
        if worker in self._ended:
            return
        self._ended[worker] = reason
        if worker in self._workers:
            self._blame(worker)

    def _blame(self, worker: WorkerId) -> None:
        left = self._workers[worker] - self._finished
        if left:
            why = self._ended[worker] or f"it ended before {len(left)} of its tasks did"
            self.record_failure(Failure.lost(f"lost worker {worker}: {why}"))
