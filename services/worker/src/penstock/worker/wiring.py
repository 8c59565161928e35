"""The channels of the subtasks of one worker, among each other and with those of others, as the edges ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.ids import WorkerId
from penstock.common.program import Edge, EdgeKind, Node, NodeKey, Output, Program
from penstock.connectors.base import DEAD_LETTERS
from penstock.worker.alignment import Alignment
from penstock.worker.channels import Inbox
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.network.frames import Route
from penstock.worker.outlets import ByPartition, InTurn, Outlet, Sender
from penstock.worker.pace import Pace


@dataclass(frozen=True, slots=True)
class TaskId:
    """A subtask of a program."""

    node: NodeKey
    subtask: int

    def __str__(self) -> str:
        return f"{self.node}[{self.subtask}]"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How the rows of a chain are told apart for a shuffle by keys."""

    keys: tuple[str, ...]
    partitions: int


@dataclass(frozen=True, slots=True)
class Wiring:
    """One subtask and what it is connected to."""

    task: TaskId
    node: Node
    inbox: Inbox
    input: pa.Schema | None
    """The schema of what comes in; None for a source."""
    outlets: tuple[Outlet, ...]
    dead_letters: tuple[Outlet, ...]
    partitioning: Partitioning | None
    metrics: SubtaskMetrics
    keys: tuple[str, ...]
    """By which rows are dealt to the subtasks of this node; none where they are not."""
    alignment: Alignment
    """This subtask and the others of its node, by their event times."""


class Remote(Protocol):
    """Makes channels to and from other workers."""

    def sender(self, route: Route, worker: WorkerId) -> Sender:
        """A channel to a subtask there."""
        ...

    def receive(self, route: Route, worker: WorkerId, inbox: Inbox, bound: int) -> None:
        """A channel from a subtask there into an inbox here."""
        ...


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The tasks of other workers, and the way there."""

    workers: Mapping[TaskId, WorkerId]
    remote: Remote


def wire(
    program: Program, tasks: Iterable[TaskId], pace: Pace, elsewhere: Elsewhere | None = None
) -> tuple[Wiring, ...]:
    """The subtasks that this worker has, connected with each other and with those elsewhere."""
    local = tuple(tasks)
    nodes = {node.key: node for node in program.nodes}
    inboxes = {task: Inbox() for task in local}
    connecting = _Connecting(program, inboxes, pace.channel_rows, elsewhere)
    # Not a mapping of edges: a table that is united with itself has two that are equal.
    channels = tuple((edge, connecting.connect(place, edge)) for place, edge in enumerate(program.edges))
    alignments = {
        key: Alignment((task.subtask for task in local if task.node == key), pace.watermark_drift_us) for key in nodes
    }
    return tuple(_wiring(program, task, inboxes[task], channels, alignments[task.node]) for task in local)


class _Connecting:
    def __init__(
        self, program: Program, inboxes: Mapping[TaskId, Inbox], channel_rows: int, elsewhere: Elsewhere | None
    ) -> None:
        self._nodes = {node.key: (place, node) for place, node in enumerate(program.nodes)}
        self._inboxes = inboxes
        self._channel_rows = channel_rows
        self._elsewhere = elsewhere

    def connect(self, place: int, edge: Edge) -> Mapping[TaskId, tuple[Sender, ...]]:
        """The channels of an edge by the subtask that sends."""
        channels: dict[TaskId, list[Sender]] = {}
        (source_place, source_node), (target_place, target_node) = self._nodes[edge.source], self._nodes[edge.target]
        for source, target in _pairs(edge, source_node.parallelism, target_node.parallelism):
            inbox = self._inboxes.get(target)
            if source in self._inboxes and inbox is not None:
                channels.setdefault(source, []).append(inbox.channel(self._channel_rows))
            elif source in self._inboxes or inbox is not None:
                elsewhere = self._found(source, target)
                route = Route(source_place, source.subtask, target_place, target.subtask, place)
                if inbox is None:
                    sender = elsewhere.remote.sender(route, elsewhere.workers[target])
                    channels.setdefault(source, []).append(sender)
                else:
                    elsewhere.remote.receive(route, elsewhere.workers[source], inbox, self._channel_rows)
        return {task: tuple(found) for task, found in channels.items()}

    def _found(self, source: TaskId, target: TaskId) -> Elsewhere:
        missing = target if source in self._inboxes else source
        if self._elsewhere is None or missing not in self._elsewhere.workers:
            raise InternalError(f"subtasks {source} and {target} are connected, but no worker has {missing}")
        return self._elsewhere


def _pairs(edge: Edge, sources: int, targets: int) -> Iterator[tuple[TaskId, TaskId]]:
    if edge.kind is EdgeKind.FORWARD and sources != targets:
        raise InternalError(f"the forward edge {edge.source} → {edge.target} joins {sources} and {targets} subtasks")
    for source in range(sources):
        for target in range(targets):
            if edge.kind is not EdgeKind.FORWARD or source == target:
                yield TaskId(edge.source, source), TaskId(edge.target, target)


def _wiring(
    program: Program,
    task: TaskId,
    inbox: Inbox,
    channels: Iterable[tuple[Edge, Mapping[TaskId, tuple[Sender, ...]]]],
    alignment: Alignment,
) -> Wiring:
    metrics = SubtaskMetrics(task.node, task.subtask, lambda: inbox.rows)
    partitioning = _partitioning(program, task, program.outputs_of(task.node))

    def outlets(output: Output) -> Iterator[Outlet]:
        for edge, senders in channels:
            if edge.source == task.node and edge.output is output:
                if partitioning is not None and edge.keys:
                    yield ByPartition(senders[task], metrics.backpressure)
                else:
                    yield InTurn(senders[task], metrics.backpressure, task.subtask)

    return Wiring(
        task,
        program.node(task.node),
        inbox,
        _input(program, task),
        tuple(outlets(Output.ROWS)),
        tuple(outlets(Output.DEAD_LETTERS)),
        partitioning,
        metrics,
        next((edge.keys for edge in program.inputs_of(task.node) if edge.keys), ()),
        alignment,
    )


def _partitioning(program: Program, task: TaskId, edges: Iterable[Edge]) -> Partitioning | None:
    wanted = {
        Partitioning(edge.keys, program.node(edge.target).parallelism) if edge.keys else None
        for edge in edges
        if edge.output is Output.ROWS
    }
    if len(wanted) > 1:
        raise InternalError(f"the outputs of {task.node} part their rows in different ways")
    found = next(iter(wanted), None)
    return found if found is not None and found.partitions > 1 else None


def _input(program: Program, task: TaskId) -> pa.Schema | None:
    for edge in program.inputs_of(task.node):
        return DEAD_LETTERS if edge.output is Output.DEAD_LETTERS else program.node(edge.source).operators[-1].output
    return None
