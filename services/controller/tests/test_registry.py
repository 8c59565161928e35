from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock.common.ids import Generation, JobId, NodeId, WorkerId
from penstock.controller.placement import Capacity
from penstock.controller.records import TaskOwner
from penstock.controller.registry import Registry

OWNER = TaskOwner(JobId.new(), Generation(1))
NODE, WORKER = NodeId.new(), WorkerId.new()


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.lost: list[tuple[WorkerId, TaskOwner, str]] = []
        self.registry = Registry(
            heartbeat_timeout=timedelta(seconds=10), node_timeout=timedelta(seconds=15), clock=lambda: self.now
        )
        self.registry.on_worker_lost(lambda *told: self.lost.append(told))

    def pass_time(self, seconds: float, step: float = 0.2) -> None:
        """As time passes for a controller that listens all the while."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + step, until)
            self.registry.check_overdue()


@pytest.fixture
def world() -> World:
    world = World()
    world.registry.register_node(NODE, "127.0.0.1:1", 4)
    world.registry.heartbeat_node(NODE, 0, ())
    world.registry.register_worker(WORKER, NODE, "127.0.0.1:2", "", None)
    return world


def test_a_silent_worker_is_lost_once_and_must_register_again(world: World) -> None:
    world.registry.own(WORKER, OWNER)
    world.pass_time(9.9)
    assert world.lost == [] and world.registry.heartbeat_worker(WORKER)
    world.pass_time(10.2)
    assert world.lost == [(WORKER, OWNER, "it has not been heard of for 10s")]
    assert not world.registry.heartbeat_worker(WORKER)
    world.pass_time(30)
    assert len(world.lost) == 1


def test_a_standby_that_is_lost_is_nobodys_business(world: World) -> None:
    world.pass_time(11)
    assert world.lost == [] and not world.registry.workers


def test_time_in_which_the_controller_did_not_listen_does_not_count(world: World) -> None:
    world.registry.own(WORKER, OWNER)
    world.pass_time(60, step=60)
    assert world.lost == [] and NODE in world.registry.nodes
    world.pass_time(11)
    assert len(world.lost) == 1


def test_a_silent_node_is_forgotten(world: World) -> None:
    world.pass_time(15.2)
    assert not world.registry.nodes
    assert not world.registry.heartbeat_node(NODE, 0, ())


def test_a_worker_that_its_node_no_longer_names_is_lost(world: World) -> None:
    world.registry.own(WORKER, OWNER)
    world.registry.grant(WORKER, NODE, 1)
    assert world.registry.heartbeat_node(NODE, 1, {WORKER})
    world.registry.heartbeat_node(NODE, 0, set())
    assert world.lost == [(WORKER, OWNER, "its process ended")]


def test_a_heartbeat_that_left_before_the_worker_started_does_not_lose_it(world: World) -> None:
    world.registry.own(WORKER, OWNER)
    world.registry.grant(WORKER, NODE, 1)
    world.registry.heartbeat_node(NODE, 0, set())
    world.registry.heartbeat_node(NODE, 1, {WORKER})
    assert world.lost == []


def test_a_worker_that_died_before_its_node_ever_named_it_is_lost(world: World) -> None:
    world.registry.own(WORKER, OWNER)
    world.registry.grant(WORKER, NODE, 1)
    world.registry.heartbeat_node(NODE, 0, set())
    world.registry.heartbeat_node(NODE, 0, set())
    assert len(world.lost) == 1


def test_free_slots_are_what_the_node_says_less_what_was_asked_for_since(world: World) -> None:
    registry = world.registry
    assert registry.capacities == (Capacity(NODE, 4, 4),)
    registry.grant(WORKER, NODE, 3)
    assert registry.capacities == (Capacity(NODE, 4, 1),)
    registry.heartbeat_node(NODE, 4, {WORKER})
    assert registry.capacities == (Capacity(NODE, 4, 0),)
    registry.release_worker(WORKER)
    registry.heartbeat_node(NODE, 1, set())
    assert registry.capacities == (Capacity(NODE, 4, 3),)


async def test_who_waits_for_a_worker_gets_it_when_it_registers(world: World) -> None:
    late = WorkerId.new()
    waiting = [asyncio.create_task(world.registry.registered(late)) for _ in range(2)]
    await asyncio.sleep(0)
    world.registry.register_worker(late, None, "127.0.0.1:3", "127.0.0.1:4", None)
    workers = await asyncio.wait_for(asyncio.gather(*waiting), 1)
    assert {worker.rpc_address for worker in workers} == {"127.0.0.1:3"}


async def test_who_waits_for_slots_is_woken_when_some_are_free(world: World) -> None:
    registry = world.registry
    await asyncio.wait_for(registry.capacity_change(), 1)
    registry.grant(WORKER, NODE, 4)
    registry.heartbeat_node(NODE, 4, {WORKER})
    waiting = asyncio.create_task(registry.capacity_change())
    done, _ = await asyncio.wait({waiting}, timeout=0.02)
    assert not done
    registry.heartbeat_node(NODE, 1, {WORKER})
    await asyncio.wait_for(waiting, 1)


def test_a_node_has_nothing_free_before_it_has_said_so(world: World) -> None:
    other = NodeId.new()
    world.registry.register_node(other, "127.0.0.1:5", 2)
    assert Capacity(other, 2, 0) in world.registry.capacities
    world.registry.heartbeat_node(other, 1, ())
    world.registry.register_node(other, "127.0.0.1:6", 2)
    assert Capacity(other, 2, 1) in world.registry.capacities


async def test_slots_are_free_as_soon_as_a_node_has_ended_their_worker(world: World) -> None:
    registry = world.registry
    await registry.capacity_change()
    registry.grant(WORKER, NODE, 3)
    registry.heartbeat_node(NODE, 3, {WORKER})
    registry.note_used(NODE, 0)
    registry.release_worker(WORKER)
    assert registry.capacities == (Capacity(NODE, 4, 4),)
    await asyncio.wait_for(registry.capacity_change(), 1)


async def test_a_node_that_does_not_answer_is_left_out_until_it_is_heard_of(world: World) -> None:
    registry = world.registry
    await registry.capacity_change()
    registry.suspect(NODE)
    assert not registry.reachable and len(registry.capacities) == 1
    registry.heartbeat_node(NODE, 0, ())
    assert registry.reachable == registry.capacities
    await asyncio.wait_for(registry.capacity_change(), 1)


async def test_who_waits_for_slots_is_woken_when_there_are_fewer_in_all(world: World) -> None:
    await world.registry.capacity_change()
    world.pass_time(15.2)
    await asyncio.wait_for(world.registry.capacity_change(), 1)


async def test_drains_are_told_once_to_those_who_watch(world: World) -> None:
    registry, told = world.registry, list[frozenset[NodeId]]()
    await registry.capacity_change()
    with registry.watching_drains(lambda: told.append(registry.draining)):
        registry.drain(frozenset({NODE}))
        registry.drain(frozenset({NODE}))
        assert registry.capacities == (Capacity(NODE, 4, 4, draining=True),)
        registry.drain(frozenset())
    registry.drain(frozenset({NODE}))
    assert told == [frozenset({NODE}), frozenset()]
    await asyncio.wait_for(registry.capacity_change(), 1)


def test_nodes_are_settled_when_none_has_come_or_gone_for_a_while(world: World) -> None:
    world.pass_time(5)
    world.registry.register_node(NODE, "127.0.0.1:1", 4)
    assert world.registry.seconds_unchanged == pytest.approx(5)
    world.registry.register_node(NodeId.new(), "127.0.0.1:5", 4)
    assert world.registry.seconds_unchanged == 0
    world.pass_time(5)
    world.registry.drain(frozenset({NODE}))
    assert world.registry.seconds_unchanged == pytest.approx(5)
    world.registry.drain(frozenset())
    assert world.registry.seconds_unchanged == 0
    world.pass_time(5)
    world.registry.suspect(NODE)
    assert world.registry.seconds_unchanged == 0
    world.pass_time(5)
    world.registry.suspect(NODE)
    assert world.registry.seconds_unchanged == pytest.approx(5)
