"""The channels among the subtasks of one worker, as the edges of the program ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import Edge, EdgeKind, Node, NodeKey, Output, Program
from penstock.connectors.base import DEAD_LETTERS
from penstock.worker.channels import Channel, Inbox
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.outlets import ByPartition, InTurn, Outlet


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


def wire(program: Program, tasks: Iterable[TaskId], channel_rows: int) -> tuple[Wiring, ...]:
    """The subtasks that this worker has, connected with each other."""
    local = tuple(tasks)
    nodes = {node.key: node for node in program.nodes}
    inboxes = {task: Inbox() for task in local}
    # Not a mapping of edges: a table that is united with itself has two that are equal.
    channels = tuple((edge, _connect(edge, nodes, inboxes, channel_rows)) for edge in program.edges)
    return tuple(_wiring(program, task, inboxes[task], channels) for task in local)


def _connect(
    edge: Edge, nodes: Mapping[NodeKey, Node], inboxes: Mapping[TaskId, Inbox], channel_rows: int
) -> Mapping[TaskId, tuple[Channel, ...]]:
    """The channels of an edge by the subtask that sends."""
    channels: dict[TaskId, list[Channel]] = {}
    for source, target in _pairs(edge, nodes[edge.source].parallelism, nodes[edge.target].parallelism):
        if source in inboxes and target in inboxes:
            channels.setdefault(source, []).append(inboxes[target].channel(channel_rows))
        elif source in inboxes or target in inboxes:
            raise InternalError(f"subtasks {source} and {target} are connected and must be on one worker")
    return {task: tuple(found) for task, found in channels.items()}


def _pairs(edge: Edge, sources: int, targets: int) -> Iterator[tuple[TaskId, TaskId]]:
    if edge.kind is EdgeKind.FORWARD and sources != targets:
        raise InternalError(f"the forward edge {edge.source} → {edge.target} joins {sources} and {targets} subtasks")
    for source in range(sources):
        for target in range(targets):
            if edge.kind is EdgeKind.SHUFFLE or source == target:
                yield TaskId(edge.source, source), TaskId(edge.target, target)


def _wiring(
    program: Program,
    task: TaskId,
    inbox: Inbox,
    channels: Iterable[tuple[Edge, Mapping[TaskId, tuple[Channel, ...]]]],
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
