"""Credits and what waits to be written, in any order of events."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.network.credits import Allowance, Credit
from penstock.worker.network.frames import BadFrame, Route
from penstock.worker.network.outbox import Outbox
from penstock.worker.signals import Barrier, Watermark


@given(
    st.integers(1, 50),
    st.lists(st.integers(1, 70), max_size=30),
    st.lists(st.sampled_from(["send", "arrive", "take", "told"]), max_size=200),
)
def test_never_more_than_the_bound_is_on_its_way_and_everything_arrives(
    bound: int, batches: list[int], moves: list[str]
) -> None:
    credit, allowance = Credit(), Allowance(bound)
    unsent, flying, inbox, grants = deque(batches), deque[int](), deque[int](), deque([0])
    taken = 0

    def move(kind: str) -> bool:
        nonlocal taken
        match kind:
            case "send" if unsent:
                if not credit.spend(unsent[0]):
                    return False
                flying.append(unsent.popleft())
            case "arrive" if flying:
                inbox.append(flying.popleft())
                allowance.receive(inbox[-1])  # which raises where a sender was wrong
            case "take" if inbox:
                taken += inbox[0]
                if (told := allowance.take(inbox.popleft())) is not None:
                    grants.append(told)
            case "told" if grants:
                credit.grant(grants.popleft(), bound)
            case _:
                return False
        waiting = [*flying, *inbox]
        assert sum(waiting) <= bound or len(waiting) == 1
        return True

    for kind in moves:
        move(kind)
    while any([move(kind) for kind in ("told", "send", "arrive", "take")]):
        pass
    assert taken == sum(batches)


def test_nothing_is_sent_before_the_receiver_has_granted_any() -> None:
    credit = Credit()
    assert not credit.spend(1)
    credit.grant(0, 10)
    assert credit.spend(1)


def test_rows_beyond_the_credit_and_grants_of_what_was_never_sent_are_refused() -> None:
    allowance = Allowance(10)
    allowance.receive(25)  # alone
    with pytest.raises(BadFrame):
        allowance.receive(1)
    credit = Credit()
    with pytest.raises(BadFrame):
        credit.grant(1, 10)


def test_watermarks_and_grants_that_wait_replace_each_other() -> None:
    outbox, route, other = Outbox(), Route(edge=1), Route(edge=2)
    for at in range(1000):
        outbox.put(route, Watermark(at))
        outbox.put(other, Watermark(None if at % 2 else at))
        outbox.grant(route, at, 10)
        outbox.block(route)
    outbox.put(route, Barrier(1))
    outbox.put(route, Watermark(1000))
    assert len(outbox) <= 8
    assert outbox.take_grants() == {route: (999, 10)}
    found = []
    while (waiting := outbox.take()) is not None:
        found += [(waiting.route, item) for item in waiting.items]
    assert [item for place, item in found if place == route] == [Watermark(999), Barrier(1), Watermark(1000)]
    assert [item for place, item in found if place == other] == [Watermark(998), Watermark(None)]
