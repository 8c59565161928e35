"""Nodes that are drained: their jobs move with nothing lost, and nothing comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from penstock.common.bus import Bus
from penstock.common.database import Pool
from penstock.common.jobs import JobState
from penstock.common.testing import eventually, free_port
from penstock.controller.service import Serving
from penstock.controller.testing import FakeNode, FakeWorkers, quick_settings, running_controller
from penstock.controller.testing_desired import Desired

Running = Callable[[], AbstractAsyncContextManager[Serving]]
AddNodes = Callable[..., Awaitable[list[FakeNode]]]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture
def running(pool: Pool, bus: Bus, tmp_path: Path, port: int) -> Running:
    """A controller whose jobs have checkpoints, always at the same address."""
    settings = quick_settings(scheduler="node", rpc_port=str(port))
    return lambda: running_controller(pool, bus, settings, checkpoint_folder=tmp_path)


@pytest.fixture
async def add_nodes(workers: FakeWorkers, pool: Pool, port: int) -> AsyncIterator[AddNodes]:
    """Starts nodes with so many slots each, and waits until there is a word of them."""
    async with AsyncExitStack() as stack:

        async def add(*slots: int) -> list[FakeNode]:
            nodes = [await FakeNode(f"127.0.0.1:{port}", each, workers).open() for each in slots]
            for node in nodes:
                stack.push_async_callback(node.close)

            async def are_known() -> bool:
                query = "SELECT count(*) FROM nodes WHERE id = ANY($1) AND slots_used = 0"
                return bool(await pool.fetchval(query, [node.id for node in nodes]) == len(nodes))

            await eventually(are_known)
            return nodes

        yield add


async def is_drained(desired: Desired, node: FakeNode) -> bool:
    query = "SELECT draining AND slots_used = 0 FROM nodes WHERE id = $1"
    return bool(await desired.pool.fetchval(query, node.id))


async def test_a_job_leaves_a_drained_node_by_a_checkpoint(
    running: Running, desired: Desired, add_nodes: AddNodes, workers: FakeWorkers
) -> None:
    async with running():
        leaving, staying = await add_nodes(2, 2)
        # That it was once restarted by force says nothing about this restart.
        job = await desired.create(parallelism=2, interval_ms=3_600_000, restart_mode="force")
        await desired.reaches(job, JobState.RUNNING, 1)
        assert leaving.alive and staying.alive
        await desired.drain(leaving.id)
        await desired.reaches(job, JobState.RUNNING, 2)
        assert not leaving.alive and len(staying.alive) == 1
        (saved,) = await desired.checkpoints(job)
        assert (saved["state"], saved["then_stop"]) == ("ready", True)
        assert (await desired.path(job))[-3:] == ["restarting", "scheduling", "running"]
        (warning,) = await desired.events(job, "warning")
        assert warning["message"] == f"{leaving.id} is being drained: the job is saved and goes on elsewhere"
        await eventually(lambda: is_drained(desired, leaving))
        workers.stream.check()


async def test_jobs_of_a_drained_node_wait_when_there_is_no_other_and_go_on_when_it_is_taken_back(
    running: Running, desired: Desired, add_nodes: AddNodes
) -> None:
    async with running():
        (node,) = await add_nodes(2)
        job = await desired.create(parallelism=2)
        await desired.reaches(job, JobState.RUNNING)
        await desired.drain(node.id)
        await desired.reaches(job, JobState.SCHEDULING, 2)
        await eventually(lambda: is_drained(desired, node))
        _, warning = await desired.events(job, "warning")
        assert warning["message"] == "every node is being drained" and "undrain" in warning["hint"]
        await desired.undrain(node.id)
        await desired.reaches(job, JobState.RUNNING, 2)


async def test_a_preview_starts_over_elsewhere(running: Running, desired: Desired, add_nodes: AddNodes) -> None:
    async with running():
        (node,) = await add_nodes(1)
        job = await desired.create(preview=True)
        await desired.reaches(job, JobState.RUNNING)
        (other,) = await add_nodes(1)
        await desired.drain(node.id)
        await desired.reaches(job, JobState.RUNNING, 2)
        assert not node.alive and len(other.alive) == 1
        (warning,) = await desired.events(job, "warning")
        assert "starts over elsewhere" in warning["message"]


async def test_a_drain_outlives_the_controller(
    running: Running, desired: Desired, add_nodes: AddNodes, workers: FakeWorkers
) -> None:
    async with running():
        node, other = await add_nodes(4, 2)
        before = await desired.create(parallelism=4)
        await desired.reaches(before, JobState.RUNNING, 1)
    # What is wanted changes while nobody is there to see it.
    await desired.drain(node.id)
    async with running():
        await desired.update(before, parallelism=1)
        await desired.reaches(before, JobState.RUNNING, 2)
        after = await desired.create(preview=True)  # there is one stream
        await desired.reaches(after, JobState.RUNNING)
        assert not node.alive and len(other.alive) == 2
        await eventually(lambda: is_drained(desired, node))
    workers.stream.check()


async def test_a_safe_restart_rebalances_over_nodes_that_have_joined(
    running: Running, desired: Desired, add_nodes: AddNodes, workers: FakeWorkers
) -> None:
    async with running():
        (first,) = await add_nodes(4)
        job = await desired.create(parallelism=4)
        await desired.reaches(job, JobState.RUNNING, 1)
        second, third = await add_nodes(2, 2)
        await desired.update(job, restart_nonce=1)
        await desired.reaches(job, JobState.RUNNING, 2)
        assert sorted(len(worker.tasks) for node in (first, second, third) for worker in node.alive) == [2, 2, 4]
        assert await desired.events(job, "warning") == []
        workers.stream.check()
