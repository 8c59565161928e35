"""Where the slices of a program go. A slice is subtask i of every node, and takes one slot.

Forward edges stay within a slice, so they never leave a worker; rows of a shuffle cross between workers wherever those
are. A program with more slices than the whole cluster has slots takes all of them, and its slices share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from penstock.common.ids import NodeId
from penstock.common.program import Program
from penstock.controller.records import TaskId

_HINT = "stop other jobs, start another node, or lower the job's parallelism"


class Policy(StrEnum):
    """How the slices of a job are dealt out."""

    SPREAD = "spread"
    """Over as many nodes as there are, evenly."""
    PACK = "pack"
    """On as few nodes as will do."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node has; one that is being drained gets nothing."""

    node_id: NodeId
    slots: int
    free: int
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What a node gets; fewer slots than slices when a program is larger than the cluster."""

    node_id: NodeId
    slots: int
    slices: tuple[int, ...]

    @property
    def is_tight(self) -> bool:
        """Whether slices share slots."""
        return self.slots < len(self.slices)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a program cannot be placed as things are."""

    reason: str
    hint: str


def count_slices(program: Program) -> int:
    """The slots that a program, its parallelism set, asks for."""
    return max((node.parallelism for node in program.nodes), default=0)


def tasks_of_slices(program: Program, slices: Iterable[int]) -> tuple[TaskId, ...]:
    """The tasks of some slices; a node with fewer subtasks is in the first ones only."""
    return tuple(TaskId(node.key, slice_) for slice_ in slices for node in program.nodes if slice_ < node.parallelism)


def place(slices: int, capacities: Sequence[Capacity], policy: Policy) -> tuple[Share, ...] | Shortage:
    """Which node gets which slices, or what is missing."""
    if not capacities:
        return Shortage("no node is registered", "start a node: penstock node")
    open_ = [capacity for capacity in capacities if not capacity.draining]
    if not open_:
        return Shortage("every node is being drained", "start another node, or take one back: penstock nodes undrain")
    total, free = sum(each.slots for each in open_), sum(max(each.free, 0) for each in open_)
    if free < min(slices, total):
        return Shortage(f"the job needs {min(slices, total)} slots and {free} of {total} are free", _HINT)
    if slices > total:
        return _share(slices, open_)
    match policy:
        case Policy.SPREAD:
            return _spread(slices, open_)
        case Policy.PACK:
            return _pack(slices, open_)
        case _:
            assert_never(policy)


def split_evenly(slices: int, slots_per_worker: int) -> tuple[tuple[int, ...], ...]:
    """The slices of workers that are not limited by nodes; 0 slots a worker puts all of them on one."""
    workers = 1 if slots_per_worker == 0 else -(-slices // slots_per_worker)
    return tuple(tuple(range(worker, slices, workers)) for worker in range(workers))


def _spread(slices: int, capacities: Sequence[Capacity]) -> tuple[Share, ...]:
    """By turns, beginning with the emptiest, so that jobs of one slice spread as well."""
    return _deal(_turns({capacity.node_id: capacity.free for capacity in capacities})[:slices])


def _pack(slices: int, capacities: Sequence[Capacity]) -> tuple[Share, ...]:
    """The largest gaps, until one can take what is left: then the smallest that does, so that large gaps stay."""
    left, turns = list(capacities), list[NodeId]()
    while (missing := slices - len(turns)) > 0:
        fitting = [capacity for capacity in left if capacity.free >= missing]
        if fitting:
            chosen = min(fitting, key=lambda capacity: (capacity.free, capacity.node_id))
        else:
            chosen = max(left, key=lambda capacity: (capacity.free, capacity.node_id))
        turns += [chosen.node_id] * min(missing, chosen.free)
        left.remove(chosen)
    return _deal(turns)


def _share(slices: int, capacities: Sequence[Capacity]) -> tuple[Share, ...]:
    """Every slot gets as many as any other, give or take one, and so do nodes of a size."""
    slots = {capacity.node_id: capacity.slots for capacity in capacities}
    turns = _turns(slots)
    shares = _deal([turns[slice_ % len(turns)] for slice_ in range(slices)])
    return tuple(Share(share.node_id, slots[share.node_id], share.slices) for share in shares)


def _turns(slots: Mapping[NodeId, int]) -> list[NodeId]:
    """Each node as often as it has slots, in turn, the one with the most first."""
    order = sorted(slots, key=lambda node_id: (-slots[node_id], node_id))
    return [node_id for turn in range(max(slots.values())) for node_id in order if slots[node_id] > turn]


def _deal(turns: Sequence[NodeId]) -> tuple[Share, ...]:
    """The shares, when the nth slice goes to the nth node."""
    given: dict[NodeId, list[int]] = {}
    for slice_, node_id in enumerate(turns):
        given.setdefault(node_id, []).append(slice_)
    return tuple(Share(node_id, len(slices), tuple(slices)) for node_id, slices in given.items())
