from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import UserError
from penstock.common.ids import WorkerId
from penstock.node.slots import NoSlots, Slots

WORKERS = [WorkerId.new() for _ in range(4)]


@given(st.integers(1, 8), st.lists(st.tuples(st.sampled_from(WORKERS), st.integers(1, 9), st.booleans())))
def test_never_more_slots_are_taken_than_there_are(total: int, steps: list[tuple[WorkerId, int, bool]]) -> None:
    slots = Slots(total)
    for worker, number, release in steps:
        if release:
            slots = slots.release(worker)
            assert worker not in slots.taken
        elif worker not in slots.taken:
            if number > slots.free:
                with pytest.raises(NoSlots):
                    slots.take(worker, number)
            else:
                slots = slots.take(worker, number)
        assert 0 <= slots.used <= total and slots.used + slots.free == total


def test_a_worker_has_at_least_one_slot() -> None:
    with pytest.raises(UserError):
        Slots(2).take(WORKERS[0], 0)
