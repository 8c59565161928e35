"""A node as a process of its own, with a controller that listens and workers that are small scripts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from penstock.common.proto import node_pb2 as proto
from penstock.common.proto.node_pb2_grpc import NodeServiceStub
from penstock.common.rpc import calling, connect
from penstock.common.testing import eventually
from penstock.node.testing import Listener, rpc_settings, script_command, serving_listener

StartNode = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def listener() -> Listener:
    return Listener()


@pytest.fixture
async def start_node(listener: Listener, tmp_path: Path) -> AsyncIterator[StartNode]:
    nodes: list[asyncio.subprocess.Process] = []
    async with serving_listener(listener) as address:

        async def start(**settings: str) -> asyncio.subprocess.Process:
            chosen = {
                "rpc_port": "0",
                "admin_port": "0",
                "slots": "4",
                "controller": address,
                "heartbeat_interval": "50ms",
                "stop_timeout": "500ms",
                "worker_command": script_command(tmp_path),
                **settings,
            }
            node = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock.node",
                env={**os.environ, **{f"PENSTOCK__NODE__{key.upper()}": value for key, value in chosen.items()}},
            )  # fmt: skip
            nodes.append(node)
            return node

        yield start
        for node in nodes:
            if node.returncode is None:
                node.kill()
            await node.wait()


async def workers_of(listener: Listener, number: int, tmp_path: Path) -> list[int]:
    """The pids of a node's workers, once it has so many and they are up."""

    async def are_up() -> bool:
        return (
            bool(listener.beats)
            and len(listener.beats[-1][1]) == number
            and all((tmp_path / worker).exists() for worker in listener.beats[-1][1])
        )

    await eventually(are_up, 15)
    texts = [(tmp_path / worker).read_text().split("\n") for worker in listener.beats[-1][1]]
    (node,) = listener.nodes
    assert all(text[1] == node and text[3] == "true" for text in texts)
    return [int(text[0]) for text in texts]


async def are_gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


async def test_workers_are_given_out_and_stopped_over_rpc(
    listener: Listener, start_node: StartNode, tmp_path: Path
) -> None:
    await start_node()
    await workers_of(listener, 1, tmp_path)
    ((address, slots),) = listener.nodes.values()
    assert slots == 4
    async with connect(address, rpc_settings()) as channel:
        node = NodeServiceStub(channel)
        async with calling(rpc_settings()):
            given = (await node.StartWorker(proto.StartWorkerRequest(owner="job/1", slots=2))).worker_id
        await workers_of(listener, 2, tmp_path)
        assert listener.beats[-1][0] == 2
        async with calling(rpc_settings()):
            workers = (await node.GetWorkers(proto.GetWorkersRequest())).workers
        assert {(each.worker_id == given, each.owner, each.slots) for each in workers} == {
            (True, "job/1", 2),
            (False, "", 0),
        }
        async with calling(rpc_settings()):
            await node.StopWorker(proto.StopWorkerRequest(worker_id=given, force=True))

    async def is_told() -> bool:
        return listener.beats[-1][0] == 0 and given not in listener.beats[-1][1]

    await eventually(is_told)


async def test_a_node_that_is_asked_to_end_leaves_no_worker(
    listener: Listener, start_node: StartNode, tmp_path: Path
) -> None:
    node = await start_node(standby_workers="2")
    pids = await workers_of(listener, 2, tmp_path)
    node.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(node.wait(), 10) == 0
    assert await are_gone(pids)


async def test_workers_of_a_node_that_is_killed_end_by_themselves(
    listener: Listener, start_node: StartNode, tmp_path: Path
) -> None:
    node = await start_node(standby_workers="2")
    pids = await workers_of(listener, 2, tmp_path)
    node.kill()
    await node.wait()
    await eventually(lambda: are_gone(pids))


async def test_a_node_keeps_its_id_and_joins_a_controller_that_forgot_it(
    listener: Listener, start_node: StartNode, tmp_path: Path
) -> None:
    node = await start_node(state_dir=str(tmp_path / "state"), standby_workers="0")

    async def is_known() -> bool:
        return len(listener.nodes) == 1

    await eventually(is_known, 15)
    (first,) = listener.nodes
    listener.forget()
    await eventually(is_known)
    node.kill()
    await node.wait()
    listener.forget()
    await start_node(state_dir=str(tmp_path / "state"), standby_workers="0")
    await eventually(is_known, 15)
    assert list(listener.nodes) == [first]
