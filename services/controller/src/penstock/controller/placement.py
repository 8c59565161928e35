"""Where the slices of a program go. A slice is subtask i of every node, and takes one slot.

Rows stay within a slice where every edge is a forward one, so such slices spread over workers, evenly. A program with
a shuffle stays on one worker, since rows do not cross between workers yet: it takes as many slots of one node as it has
slices, and where no node is that large, all slots of the largest, which its subtasks then share.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.common.ids import NodeId
from penstock.common.program import EdgeKind, Program
from penstock.controller.records import TaskId


@dataclass(frozen=True, slots=True)
class Demand:
    """What a program asks for."""

    slices: int
    together: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node has."""

    node_id: NodeId
    slots: int
    free: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a node gets; fewer slots than slices when a program is larger than its node."""

    node_id: NodeId
    slots: int
    slices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a program cannot be placed as things are."""

    reason: str
    hint: str


def derive_demand(program: Program) -> Demand:
    """The slots that a program, its parallelism set, asks for."""
    return Demand(
        slices=max((node.parallelism for node in program.nodes), default=0),
        together=any(edge.kind is EdgeKind.SHUFFLE for edge in program.edges),
    )


def tasks_of_slices(program: Program, slices: Iterable[int]) -> tuple[TaskId, ...]:
    """The tasks of some slices; a node with fewer subtasks is in the first ones only."""
    return tuple(TaskId(node.key, slice_) for slice_ in slices for node in program.nodes if slice_ < node.parallelism)


def place(demand: Demand, capacities: Sequence[Capacity]) -> tuple[Share, ...] | Shortage:
    """Which node gets which slices, or what is missing."""
    if not capacities:
        return Shortage("no node is registered", "start a node: penstock node")
    return _place_together(demand, capacities) if demand.together else _place_spread(demand, capacities)


def split_evenly(demand: Demand, slots_per_worker: int) -> tuple[tuple[int, ...], ...]:
    """The slices of workers that are not limited by nodes; 0 slots a worker puts all of them on one."""
    if demand.together or slots_per_worker == 0:
        return (tuple(range(demand.slices)),)
    workers = -(-demand.slices // slots_per_worker)
    return tuple(tuple(range(worker, demand.slices, workers)) for worker in range(workers))


def _place_together(demand: Demand, capacities: Sequence[Capacity]) -> tuple[Share, ...] | Shortage:
    largest = max(capacity.slots for capacity in capacities)
    slots = min(demand.slices, largest)
    # The fullest that has room: large gaps stay for others that must be together.
    fitting = [capacity for capacity in capacities if capacity.free >= slots]
    if not fitting:
        free = max(capacity.free for capacity in capacities)
        return Shortage(
            f"the job needs {slots} free slots on one node and no node has more than {free}",
            "stop other jobs, start another node, or lower the job's parallelism",
        )
    chosen = min(fitting, key=lambda capacity: (capacity.free, capacity.node_id))
    return (Share(chosen.node_id, slots, tuple(range(demand.slices))),)


def _place_spread(demand: Demand, capacities: Sequence[Capacity]) -> tuple[Share, ...] | Shortage:
    free = sum(max(capacity.free, 0) for capacity in capacities)
    if free < demand.slices:
        return Shortage(
            f"the job needs {demand.slices} slots and {free} of {sum(c.slots for c in capacities)} are free",
            "stop other jobs, start another node, or lower the job's parallelism",
        )
    # Each slice to the node with the most free slots left.
    heap = [(-capacity.free, capacity.node_id) for capacity in capacities if capacity.free > 0]
    heapq.heapify(heap)
    slices: dict[NodeId, list[int]] = {}
    for slice_ in range(demand.slices):
        taken, node_id = heap[0]
        slices.setdefault(node_id, []).append(slice_)
        heapq.heapreplace(heap, (taken + 1, node_id))
    return tuple(Share(node_id, len(given), tuple(given)) for node_id, given in slices.items())
