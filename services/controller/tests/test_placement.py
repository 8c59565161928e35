from __future__ import annotations

from collections import Counter
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from penstock.common.ids import NodeId
from penstock.controller.placement import (
    Capacity,
    Policy,
    Share,
    Shortage,
    count_slices,
    place,
    split_evenly,
    tasks_of_slices,
)
from penstock.controller.records import tasks_of
from penstock.controller.testing import pipeline_program

POLICIES = st.sampled_from(Policy)


@st.composite
def capacities(draw: st.DrawFn) -> list[Capacity]:
    """Nodes of all kinds: a free count below 0 is that of one that was promised more than it has."""
    node = st.tuples(st.integers(1, 16), st.integers(-2, 16), st.integers(0, 4))
    return [
        Capacity(NodeId.new(), slots, min(slots, free), draining=drained == 0)
        for slots, free, drained in draw(st.lists(node, max_size=6))
    ]


def slots_of(nodes: list[Capacity]) -> tuple[int, int]:
    """All slots that may be used, and those of them that are free."""
    usable = [node for node in nodes if not node.draining]
    return sum(node.slots for node in usable), sum(max(node.free, 0) for node in usable)


@given(st.integers(1, 64), capacities(), POLICIES)
def test_every_slice_is_placed_once_within_what_is_free_or_a_shortage_is_told(
    slices: int, nodes: list[Capacity], policy: Policy
) -> None:
    placed = place(slices, nodes, policy)
    total, free = slots_of(nodes)
    if isinstance(placed, Shortage):
        assert total == 0 or free < min(slices, total)
        return
    usable = {node.node_id: node.free for node in nodes if not node.draining}
    assert Counter(slice_ for share in placed for slice_ in share.slices) == Counter(range(slices))
    assert all(1 <= share.slots <= usable[share.node_id] for share in placed)
    assert len({share.node_id for share in placed}) == len(placed)
    assert sum(share.slots for share in placed) == min(slices, total)
    assert any(share.is_tight for share in placed) == (slices > total)


@given(st.integers(1, 64), capacities())
def test_spread_gives_a_node_fewer_than_another_only_when_it_is_full(slices: int, nodes: list[Capacity]) -> None:
    placed = place(slices, nodes, Policy.SPREAD)
    if isinstance(placed, Shortage) or slices > slots_of(nodes)[0]:
        return
    given_to = {share.node_id: len(share.slices) for share in placed}
    most = max(given_to.values())
    for node in nodes:
        if not node.draining:
            assert given_to.get(node.node_id, 0) >= min(most - 1, max(node.free, 0))


@given(st.integers(1, 64), capacities())
def test_pack_uses_the_fewest_nodes(slices: int, nodes: list[Capacity]) -> None:
    placed = place(slices, nodes, Policy.PACK)
    if isinstance(placed, Shortage) or slices > slots_of(nodes)[0]:
        return
    largest = sorted((max(node.free, 0) for node in nodes if not node.draining), reverse=True)
    assert len(placed) == next(count for count, room in enumerate(accumulate(largest), 1) if room >= slices)


@given(st.integers(1, 200), st.lists(st.integers(1, 8), min_size=1, max_size=5), POLICIES)
def test_slices_beyond_all_slots_of_the_cluster_share_them_evenly(
    slices: int, sizes: list[int], policy: Policy
) -> None:
    placed = place(sum(sizes) + slices, [Capacity(NodeId.new(), size, size) for size in sizes], policy)
    assert not isinstance(placed, Shortage)
    assert sorted(share.slots for share in placed) == sorted(sizes)
    each = (sum(sizes) + slices) // sum(sizes)
    assert all(each * share.slots <= len(share.slices) <= (each + 1) * share.slots for share in placed)
    for size in sizes:
        of_a_size = [len(share.slices) for share in placed if share.slots == size]
        assert max(of_a_size) - min(of_a_size) <= 1


def test_a_job_larger_than_the_cluster_waits_until_all_of_it_is_free() -> None:
    free, busy = Capacity(NodeId.new(), 2, 2), Capacity(NodeId.new(), 4, 3)
    shortage = place(9, [free, busy], Policy.SPREAD)
    assert isinstance(shortage, Shortage)
    assert shortage.reason == "the job needs 6 slots and 5 of 6 are free"


def test_pack_leaves_large_gaps_for_others() -> None:
    roomy, tight = Capacity(NodeId.new(), 8, 8), Capacity(NodeId.new(), 8, 2)
    assert place(2, [roomy, tight], Policy.PACK) == (Share(tight.node_id, 2, (0, 1)),)
    assert place(2, [roomy, tight], Policy.SPREAD) == (
        Share(roomy.node_id, 1, (0,)),
        Share(tight.node_id, 1, (1,)),
    )


def test_nothing_is_placed_on_nodes_that_are_drained() -> None:
    leaving, staying = Capacity(NodeId.new(), 4, 4, draining=True), Capacity(NodeId.new(), 4, 4)
    for policy in Policy:
        assert place(3, [leaving, staying], policy) == (Share(staying.node_id, 3, (0, 1, 2)),)
        shortage = place(1, [leaving], policy)
        assert isinstance(shortage, Shortage) and "drained" in shortage.reason and "undrain" in shortage.hint


def test_a_shuffle_asks_for_no_more_than_the_largest_of_its_nodes() -> None:
    assert count_slices(pipeline_program(shuffle=True).at_parallelism(3)) == 3
    assert count_slices(pipeline_program(sink_parallelism=1).at_parallelism(3)) == 3


@given(st.integers(1, 40), st.integers(0, 8))
def test_slices_of_workers_without_nodes_are_each_given_once(slices: int, slots: int) -> None:
    workers = split_evenly(slices, slots)
    assert Counter(slice_ for worker in workers for slice_ in worker) == Counter(range(slices))
    if slots == 0:
        assert len(workers) == 1
    else:
        sizes = [len(worker) for worker in workers]
        assert max(sizes) <= slots and max(sizes) - min(sizes) <= 1


def test_a_node_with_fewer_subtasks_is_in_the_first_slices() -> None:
    program = pipeline_program(sink_parallelism=1).at_parallelism(3)
    tasks = tasks_of_slices(program, range(3))
    assert sorted(tasks) == sorted(tasks_of(program))
    assert len(tasks) == 4
