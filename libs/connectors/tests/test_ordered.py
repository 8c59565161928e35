"""Results are used in order, few at a time, and errors surface."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.common.testing import eventually
from penstock.connectors.ordered import OrderedWork


async def test_results_are_used_in_order_though_work_ends_in_another() -> None:
    used: list[int] = []
    gates = [threading.Event() for _ in range(3)]

    def work(item: int) -> int:
        gates[item].wait()
        return item

    ordered = OrderedWork(work, used.append, in_flight=3)
    for item in range(3):
        await ordered.add(item)
    for gate in reversed(gates):
        gate.set()
    await ordered.finish()
    assert used == [0, 1, 2]


async def test_no_more_than_the_limit_is_under_way() -> None:
    gate = threading.Event()
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        gate.wait()
        return item

    used: list[int] = []
    ordered = OrderedWork(work, used.append, in_flight=2)
    await ordered.add(0)
    await ordered.add(1)
    third = asyncio.create_task(ordered.add(2))

    async def both_started() -> bool:
        return len(started) == 2

    await eventually(both_started)
    assert not third.done()
    gate.set()
    await third
    await ordered.finish()
    assert used == [0, 1, 2]


async def test_an_error_is_raised_and_nothing_after_it_is_used() -> None:
    used: list[int] = []

    def use(item: int) -> None:
        if item == 1:
            raise ValueError("full")
        used.append(item)

    ordered = OrderedWork(lambda item: item, use, in_flight=10)
    for item in range(4):
        await ordered.add(item)
    with pytest.raises(ValueError, match="full"):
        await ordered.finish()
    await ordered.close()
    assert used == [0]
