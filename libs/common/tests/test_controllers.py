"""Whoever calls controllers finds the one that leads, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.config import load_config
from penstock.common.controllers import Controllers, LeaderClaim, parse_addresses, resolve_leader
from penstock.common.errors import FencedError, NotLeader, PeerUnavailable, SettingsError
from penstock.common.fencing import GENERATION_KEY, UNSURE_KEY, Fence
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.controller_pb2_grpc import (
    ControllerServiceServicer,
    ControllerServiceStub,
    add_ControllerServiceServicer_to_server,
)
from penstock.common.rpc import RpcServer, RpcSettings, calling, connect, serve
from penstock.common.testing import eventually, free_port

RPC = load_config(environment={}).section("rpc", RpcSettings)
Context = grpc.aio.ServicerContext[Any, Any]


class Controller(ControllerServiceServicer):
    """Leads, follows another, or does not answer at all, as a test says."""

    def __init__(self) -> None:
        self.generation = 0
        self.leads = False
        self.unsure = False
        self.leader = ""
        self.hangs = False
        self.beats = 0
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def open(self) -> RpcServer:
        return await serve(
            lambda server: add_ControllerServiceServicer_to_server(self, server),
            host="127.0.0.1",
            port=self.port,
            settings=RPC,
        )

    def lead(self, generation: int) -> None:
        self.leads, self.generation, self.leader = True, generation, self.address

    def follow(self, other: Controller) -> None:
        self.leads, self.generation, self.leader = False, other.generation, other.address

    async def GetLeader(self, request: proto.GetLeaderRequest, context: Context) -> proto.GetLeaderResponse:
        await self._answer()
        return proto.GetLeaderResponse(leads=self.leads, address=self.leader, generation=self.generation)

    async def Heartbeat(self, request: proto.HeartbeatRequest, context: Context) -> proto.HeartbeatResponse:
        await self._answer()
        self._refuse()
        unsure = ((UNSURE_KEY, "true"),) if self.unsure else ()
        context.set_trailing_metadata(((GENERATION_KEY, str(self.generation)), *unsure))
        self.beats += 1
        return proto.HeartbeatResponse(known=True)

    async def SubscribeToOutput(
        self, request: proto.SubscribeToOutputRequest, context: Context
    ) -> AsyncIterator[proto.OutputData]:
        await self._answer()
        self._refuse()
        for number in range(3):
            yield proto.OutputData(rows=number)

    def _refuse(self) -> None:
        if not self.leads:
            raise NotLeader("not me", leader=self.leader)

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()


@asynccontextmanager
async def running(count: int = 2) -> AsyncIterator[list[Controller]]:
    """The first of them leads."""
    async with AsyncExitStack() as stack:
        controllers = [Controller() for _ in range(count)]  # type: ignore[abstract]
        controllers[0].lead(1)
        for controller in controllers:
            if controller is not controllers[0]:
                controller.follow(controllers[0])
            stack.push_async_callback((await controller.open()).close, 0)
        yield controllers


async def beat(controllers: Controllers) -> None:
    async with calling(RPC):
        assert (await controllers.stub.Heartbeat(proto.HeartbeatRequest())).known


def listed(*controllers: Controller) -> str:
    return ", ".join(controller.address for controller in controllers)


async def test_a_follower_names_the_leader_though_no_setting_does() -> None:
    async with running() as (leader, follower), Controllers(follower.address, RPC) as controllers:
        await beat(controllers)
        assert (leader.beats, controllers.address) == (1, leader.address)


async def test_a_new_leader_is_found_when_the_old_one_is_gone_or_silent() -> None:
    async with running(3) as (first, second, third), Controllers(listed(first, second, third), RPC) as controllers:
        await beat(controllers)
        first.hangs = True
        second.lead(2)
        third.follow(second)
        async with asyncio.timeout(5):
            await beat(controllers)
        assert second.beats == 1
        second.follow(third)
        third.lead(3)
        await beat(controllers)
        assert third.beats == 1


async def test_a_call_that_takes_long_is_not_given_up_while_nobody_else_leads() -> None:
    async with running() as (leader, follower), Controllers(listed(leader, follower), RPC) as controllers:
        leader.hangs = True
        calls = asyncio.create_task(beat(controllers))
        done, _ = await asyncio.wait({calls}, timeout=3)
        assert not done
        calls.cancel()
        await asyncio.wait({calls})
        assert controllers.address == leader.address


async def test_one_that_has_been_deposed_is_not_believed() -> None:
    async with running() as (old, new), Controllers(listed(old, new), RPC, fence := Fence()) as controllers:
        await beat(controllers)
        new.lead(2)
        fence.observe(2)  # by a command of the new one
        await beat(controllers)
        assert (new.beats, controllers.address) == (1, new.address)


async def test_one_that_is_unsure_is_left_when_another_leads() -> None:
    async with running() as (old, new), Controllers(listed(old, new), RPC, fence := Fence()) as controllers:
        old.unsure = True
        await beat(controllers)
        new.lead(2)

        async def left() -> bool:
            await beat(controllers)
            return controllers.address == new.address

        await eventually(left)
        assert fence.newest == 2


async def test_streams_come_from_the_leader() -> None:
    async with running() as (leader, follower), Controllers(listed(follower, leader), RPC) as controllers:
        request = proto.SubscribeToOutputRequest()
        assert [data.rows async for data in controllers.stub.SubscribeToOutput(request)] == [0, 1, 2]


async def test_without_a_leader_the_caller_is_told_so() -> None:
    async with running() as (first, second), Controllers(listed(first, second), RPC) as controllers:
        first.leads, first.leader = False, ""
        with pytest.raises(NotLeader):
            await beat(controllers)
    async with Controllers(listed(first, second), RPC) as controllers:
        with pytest.raises(PeerUnavailable):
            await beat(controllers)


async def test_commands_of_a_deposed_controller_are_refused_and_counted() -> None:
    fence, controller = Fence(), Controller()  # type: ignore[abstract]
    controller.lead(1)
    server = await serve(
        lambda served: add_ControllerServiceServicer_to_server(controller, served),
        host="127.0.0.1",
        port=0,
        settings=RPC,
        fence=fence,
    )

    async def command(generation: int) -> None:
        async with connect(f"127.0.0.1:{server.port}", RPC, leads=generation) as channel, calling(RPC):
            await ControllerServiceStub(channel).Heartbeat(proto.HeartbeatRequest())

    await command(1)
    await command(3)
    with pytest.raises(FencedError):
        await command(2)
    await command(3)
    assert (fence.newest, fence.refused, controller.beats) == (3, 1, 3)
    await server.close(0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))), st.integers(0, 5))
def test_the_newest_that_claims_to_lead_is_followed(claims: list[tuple[bool, int]], newest: int) -> None:
    said = [LeaderClaim(str(n), leads, "", generation) for n, (leads, generation) in enumerate(claims)]
    found = resolve_leader(said, newest)
    leading = [generation for leads, generation in claims if leads and generation >= newest]
    assert (found.generation if found else None) == max(leading, default=None)


def test_addresses_are_read_once_each() -> None:
    assert parse_addresses("a:1, b:2,a:1,") == ("a:1", "b:2")
    with pytest.raises(SettingsError):
        parse_addresses(" ,")
