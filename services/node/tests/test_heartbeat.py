from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock.common.errors import PeerUnavailable
from penstock.common.ids import NodeId, WorkerId
from penstock.common.testing import eventually
from penstock.node.heartbeat import Heartbeat
from penstock.node.testing import Listener

NODE, WORKER = NodeId.new(), WorkerId.new()


class Workers:
    def __init__(self) -> None:
        self.alive: tuple[int, tuple[WorkerId, ...]] = (0, ())
        self._changed = asyncio.Event()

    def change(self, used: int, *workers: WorkerId) -> None:
        self.alive = (used, workers)
        self._changed.set()

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()


class World:
    def __init__(self, interval: timedelta) -> None:
        self.controller = Listener()
        self.workers = Workers()
        self.heartbeat = Heartbeat(
            self.controller, self.workers, node=NODE, rpc_address="127.0.0.1:1", slots=3, interval=interval
        )

    async def is_known(self) -> bool:
        return self.controller.nodes == {NODE: ("127.0.0.1:1", 3)} and bool(self.controller.beats)


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World(getattr(request, "param", timedelta(milliseconds=10)))
    task = asyncio.create_task(world.heartbeat.run())
    yield world
    task.cancel()


async def test_a_node_registers_once_and_then_beats(world: World) -> None:
    async def has_beaten() -> bool:
        return len(world.controller.beats) > 3

    await eventually(has_beaten)
    assert world.controller.registrations == 1
    await world.heartbeat.check()


async def test_a_node_registers_again_with_a_controller_that_forgot_it(world: World) -> None:
    await eventually(world.is_known)
    world.controller.forget()
    await eventually(world.is_known)


async def test_a_controller_that_is_away_is_waited_for(world: World) -> None:
    await eventually(world.is_known)
    world.controller.away = True

    async def is_noticed() -> bool:
        try:
            await world.heartbeat.check()
        except PeerUnavailable:
            return True
        return False

    await eventually(is_noticed)
    world.controller.forget()
    world.controller.away = False
    await eventually(world.is_known)


@pytest.mark.parametrize("world", [timedelta(hours=1)], indirect=True)
async def test_a_change_is_told_at_once(world: World) -> None:
    await eventually(world.is_known)
    world.workers.change(2, WORKER)

    async def is_told() -> bool:
        return world.controller.beats[-1] == (2, (WORKER,))

    await eventually(is_told)
