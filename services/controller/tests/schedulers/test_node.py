"""Jobs on nodes that speak the real protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from penstock.common.bus import Bus
from penstock.common.database import Pool
from penstock.common.jobs import JobState
from penstock.common.testing import eventually
from penstock.controller.service import Serving
from penstock.controller.testing import FakeNode, FakeWorkers, pipeline_program, quick_settings, running_controller
from penstock.controller.testing_desired import Desired

AddNode = Callable[[int], Awaitable[FakeNode]]


@pytest.fixture
async def controller(pool: Pool, bus: Bus) -> AsyncIterator[Serving]:
    async with running_controller(pool, bus, quick_settings(scheduler="node")) as serving:
        yield serving


@pytest.fixture
async def add_node(controller: Serving, workers: FakeWorkers) -> AsyncIterator[AddNode]:
    async with AsyncExitStack() as stack:

        async def add(slots: int) -> FakeNode:
            node = await FakeNode(f"127.0.0.1:{controller.rpc_port}", slots, workers).open()
            stack.push_async_callback(node.close)
            return node

        yield add


async def is_registered(desired: Desired, nodes: int) -> bool:
    return bool(await desired.pool.fetchval("SELECT count(*) = $1 FROM nodes", nodes))


@pytest.mark.parametrize("shuffle", [False, True])
async def test_slices_spread_over_nodes(desired: Desired, add_node: AddNode, shuffle: bool) -> None:
    first, second = await add_node(4), await add_node(4)
    await eventually(lambda: is_registered(desired, 2))
    job = await desired.create(pipeline_program(shuffle=shuffle), parallelism=4)
    await eventually(lambda: desired.is_in(job, JobState.RUNNING))
    tasks = [sorted(map(str, worker.tasks)) for node in (first, second) for worker in node.alive]
    assert sorted(tasks) == [["in/0", "in/2", "out/0", "out/2"], ["in/1", "in/3", "out/1", "out/3"]]
    (one,), (other,) = first.alive, second.alive
    await one.finish()
    await other.finish()
    await eventually(lambda: desired.is_in(job, JobState.FINISHED))


async def test_slices_are_packed_where_the_settings_say_so(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers
) -> None:
    async with running_controller(pool, bus, quick_settings(scheduler="node", placement="pack")) as controller:
        nodes = [await FakeNode(f"127.0.0.1:{controller.rpc_port}", slots, workers).open() for slots in (2, 4, 3)]
        await eventually(lambda: is_registered(desired, 3))
        job = await desired.create(parallelism=3)
        await eventually(lambda: desired.is_in(job, JobState.RUNNING))
        assert [len(node.alive) for node in nodes] == [0, 0, 1]
        for node in nodes:
            await node.close()


async def test_a_job_larger_than_the_cluster_shares_all_of_its_slots(desired: Desired, add_node: AddNode) -> None:
    small, large = await add_node(1), await add_node(2)
    job = await desired.create(parallelism=6)
    await eventually(lambda: desired.is_in(job, JobState.RUNNING))
    (one,), (other,) = small.alive, large.alive
    assert (len(one.tasks), len(other.tasks)) == (4, 8)
    assert (small.owners[one.id], large.owners[other.id]) == ((f"{job}/1", 1), (f"{job}/1", 2))


async def test_a_job_waits_for_slots_says_so_once_and_starts_when_a_node_joins(
    desired: Desired, add_node: AddNode
) -> None:
    job = await desired.create(parallelism=3)

    async def is_warned() -> bool:
        return bool(await desired.events(job, "warning"))

    await eventually(is_warned)
    await add_node(4)
    await eventually(lambda: desired.is_in(job, JobState.RUNNING))
    (warning,) = await desired.events(job, "warning")
    assert (warning["message"], warning["hint"]) == ("no node is registered", "start a node: penstock node")


async def test_a_job_that_waits_for_slots_can_be_stopped_and_rescaled(desired: Desired, add_node: AddNode) -> None:
    await add_node(2)
    running = await desired.create(parallelism=1)
    await eventually(lambda: desired.is_in(running, JobState.RUNNING))
    stopped, rescaled = await desired.create(parallelism=2), await desired.create(parallelism=2)
    for job in (stopped, rescaled):
        await eventually(lambda job=job: desired.is_in(job, JobState.SCHEDULING))  # type: ignore[misc]
    await desired.update(stopped, stop_mode="graceful")
    await eventually(lambda: desired.is_in(stopped, JobState.STOPPED))
    await desired.update(rescaled, parallelism=1)
    await eventually(lambda: desired.is_in(rescaled, JobState.RUNNING))


async def test_slots_of_a_stopped_job_are_used_by_the_next(desired: Desired, add_node: AddNode) -> None:
    await add_node(1)
    first = await desired.create()
    await eventually(lambda: desired.is_in(first, JobState.RUNNING))
    second = await desired.create()
    await eventually(lambda: desired.is_in(second, JobState.SCHEDULING))
    await desired.update(first, stop_mode="graceful")
    await eventually(lambda: desired.is_in(second, JobState.RUNNING))


async def test_jobs_that_start_at_once_are_not_promised_the_same_slots(desired: Desired, add_node: AddNode) -> None:
    jobs = [await desired.create() for _ in range(6)]
    node = await add_node(3)

    async def are_running() -> bool:
        return [await desired.is_in(job, JobState.RUNNING) for job in jobs].count(True) == 3

    await eventually(are_running)
    assert len(node.alive) == 3 and node.refusals == 0


async def test_a_worker_that_its_node_no_longer_names_is_lost_at_once(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers
) -> None:
    settings = quick_settings(scheduler="node", heartbeat_timeout="1h")
    async with running_controller(pool, bus, settings) as controller:
        node = await FakeNode(f"127.0.0.1:{controller.rpc_port}", 1, workers).open()
        job = await desired.create()
        await eventually(lambda: desired.is_in(job, JobState.RUNNING))
        await workers.all[0].crash()

        async def is_replaced() -> bool:
            return (await desired.status(job))["generation"] == 2 and await desired.is_in(job, JobState.RUNNING)

        await eventually(is_replaced)
        assert "its process ended" in (await desired.events(job, "error"))[0]["message"]
        await node.close()


async def test_a_node_that_is_killed_is_recovered_from_on_another(desired: Desired, add_node: AddNode) -> None:
    node = await add_node(2)
    job = await desired.create(parallelism=2)
    await eventually(lambda: desired.is_in(job, JobState.RUNNING))
    await node.close()
    other = await add_node(2)

    async def is_moved() -> bool:
        return bool(other.alive) and await desired.is_in(job, JobState.RUNNING)

    await eventually(is_moved, 10)
    await eventually(lambda: is_registered(desired, 1))


async def test_workers_of_nodes_are_adopted_and_ended_by_the_next_controller(
    pool: Pool, bus: Bus, desired: Desired, workers: FakeWorkers
) -> None:
    settings = quick_settings(scheduler="node")
    async with running_controller(pool, bus, settings) as first:
        node = await FakeNode(f"127.0.0.1:{first.rpc_port}", 2, workers).open()
        job = await desired.create(parallelism=2)
        await eventually(lambda: desired.is_in(job, JobState.RUNNING))
    again = settings.model_copy(update={"rpc_port": first.rpc_port})
    async with running_controller(pool, bus, again):

        async def is_known() -> bool:
            return bool(await pool.fetchval("SELECT count(*) = 1 FROM workers WHERE job_id = $1 AND tasks = 4", job))

        await eventually(is_known, 10)
        await desired.update(job, stop_mode="force")
        await eventually(lambda: desired.is_in(job, JobState.STOPPED))
        assert not workers.alive
    await node.close()
    assert (await desired.status(job))["generation"] == 1
