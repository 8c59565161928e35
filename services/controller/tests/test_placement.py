from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.common.ids import NodeId
from penstock.controller.placement import (
    Capacity,
    Demand,
    Share,
    Shortage,
    derive_demand,
    place,
    split_evenly,
    tasks_of_slices,
)
from penstock.controller.records import tasks_of
from penstock.controller.testing import pipeline_program


@st.composite
def capacities(draw: st.DrawFn) -> list[Capacity]:
    sizes = draw(st.lists(st.tuples(st.integers(1, 16), st.integers(-2, 16)), max_size=6))
    return [Capacity(NodeId.new(), slots, min(slots, free)) for slots, free in sizes]


@given(st.integers(1, 64), st.booleans(), capacities())
def test_every_slice_is_placed_once_within_what_is_free_or_a_shortage_is_told(
    slices: int, together: bool, nodes: list[Capacity]
) -> None:
    placed = place(Demand(slices, together), nodes)
    free = {node.node_id: node.free for node in nodes}
    if isinstance(placed, Shortage):
        needed = min(slices, max((node.slots for node in nodes), default=0)) if together else slices
        most = max(free.values(), default=0) if together else sum(max(each, 0) for each in free.values())
        assert not nodes or most < needed
        return
    assert Counter(slice_ for share in placed for slice_ in share.slices) == Counter(range(slices))
    assert all(1 <= share.slots <= free[share.node_id] for share in placed)
    assert len({share.node_id for share in placed}) == len(placed)
    assert not together or len(placed) == 1
    assert together or all(share.slots == len(share.slices) for share in placed)


@given(st.integers(1, 32), st.integers(1, 6))
def test_slices_are_even_on_equal_nodes(slices: int, nodes: int) -> None:
    placed = place(Demand(slices, together=False), [Capacity(NodeId.new(), 32, 32) for _ in range(nodes)])
    assert not isinstance(placed, Shortage)
    sizes = [len(share.slices) for share in placed]
    assert max(sizes) - min(sizes) <= 1 and len(sizes) == min(slices, nodes)


def test_a_job_larger_than_every_node_shares_the_slots_of_the_largest() -> None:
    small, large = Capacity(NodeId.new(), 2, 2), Capacity(NodeId.new(), 4, 4)
    assert place(Demand(9, together=True), [small, large]) == (Share(large.node_id, 4, tuple(range(9))),)
    busy = Capacity(large.node_id, 4, 3)
    assert isinstance(place(Demand(9, together=True), [small, busy]), Shortage)


def test_what_must_be_together_leaves_large_gaps_for_others() -> None:
    roomy, tight = Capacity(NodeId.new(), 8, 8), Capacity(NodeId.new(), 8, 2)
    placed = place(Demand(2, together=True), [roomy, tight])
    assert placed == (Share(tight.node_id, 2, (0, 1)),)


def test_a_shuffle_keeps_a_program_together() -> None:
    assert derive_demand(pipeline_program().at_parallelism(3)) == Demand(3, together=False)
    assert derive_demand(pipeline_program(shuffle=True).at_parallelism(3)) == Demand(3, together=True)
    assert derive_demand(pipeline_program(sink_parallelism=1).at_parallelism(3)) == Demand(3, together=True)


@given(st.integers(1, 40), st.integers(0, 8), st.booleans())
def test_slices_of_workers_without_nodes_are_each_given_once(slices: int, slots: int, together: bool) -> None:
    workers = split_evenly(Demand(slices, together), slots)
    assert Counter(slice_ for worker in workers for slice_ in worker) == Counter(range(slices))
    if slots == 0 or together:
        assert len(workers) == 1
    else:
        assert all(1 <= len(worker) <= slots for worker in workers)


def test_a_node_with_fewer_subtasks_is_in_the_first_slices() -> None:
    program = pipeline_program(sink_parallelism=1).at_parallelism(3)
    tasks = tasks_of_slices(program, range(3))
    assert sorted(tasks) == sorted(tasks_of(program))
    assert len(tasks) == 4
