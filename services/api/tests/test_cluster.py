from __future__ import annotations

from typing import Any

import pytest

from penstock.common.ids import JobId, NodeId, WorkerId


@pytest.fixture
async def node(api: Any) -> NodeId:
    """One of four slots, of which a job has one."""
    node = NodeId.new()
    await api.pool.execute("INSERT INTO nodes (id, rpc_address, slots, slots_used) VALUES ($1, 'a:1', 4, 1)", node)
    return node


async def run_on(api: Any, node: NodeId, job: JobId | None) -> None:
    """Writes as the controller does."""
    sql = "INSERT INTO workers (id, node_id, rpc_address, job_id) VALUES ($1, $2, 'a:2', $3)"
    await api.pool.execute(sql, WorkerId.new(), node, job)


async def test_nodes_are_listed_with_their_slots_and_jobs(api: Any, node: NodeId) -> None:
    job = JobId.new()
    for each in (job, job, None):
        await run_on(api, node, each)
    nodes = (await api.client.get("/nodes")).json()
    (found,) = nodes["data"]
    assert (found["slots"], found["slots_used"], found["slots_free"], found["state"]) == (4, 1, 3, "active")
    assert found["jobs"] == [job]
    assert nodes["has_more"] is False
    assert (await api.client.get(f"/nodes/{node}")).json() == found


async def test_a_node_is_drained_once_the_controller_knows_and_nothing_is_left(api: Any, node: NodeId) -> None:
    await run_on(api, node, JobId.new())
    drained = await api.client.patch(f"/nodes/{node}", json={"drain": True})
    assert drained.status_code == 200, drained.text
    assert (drained.json()["state"], drained.json()["slots_free"]) == ("draining", 0)
    for change in ("UPDATE nodes SET slots_used = 0", "DELETE FROM workers", "UPDATE nodes SET draining = true"):
        assert (await api.client.get(f"/nodes/{node}")).json()["state"] == "draining"
        await api.pool.execute(change)
    assert (await api.client.get(f"/nodes/{node}")).json()["state"] == "drained"
    for draining, free in ((True, 0), (False, 4)):
        await api.pool.execute("UPDATE nodes SET draining = $1", draining)
        taken_back = (await api.client.patch(f"/nodes/{node}", json={"drain": False})).json()
        assert (taken_back["state"], taken_back["slots_free"]) == ("active", free)
    assert await api.pool.fetchval("SELECT count(*) FROM node_drains") == 0


async def test_drains_of_nodes_that_are_long_gone_are_forgotten(api: Any, node: NodeId) -> None:
    for days in (29, 31):
        sql = "INSERT INTO node_drains (node_id, created_at) VALUES ($1, now() - $2 * interval '1 day')"
        await api.pool.execute(sql, NodeId.new(), days)
    await api.pool.execute("INSERT INTO node_drains (node_id, created_at) VALUES ($1, '2020-01-01Z')", node)
    await api.client.patch(f"/nodes/{node}", json={"drain": True})
    assert await api.pool.fetchval("SELECT count(*) FROM node_drains") == 2


async def test_unknown_nodes_are_not_found(api: Any) -> None:
    for method, body in (("GET", None), ("PATCH", {"drain": True}), ("PATCH", {"drain": False})):
        response = await api.client.request(method, f"/nodes/{NodeId.new()}", json=body)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert (await api.client.patch("/nodes/7", json={"drain": True})).json()["error"]["code"] == "invalid_id"
    assert (await api.client.patch(f"/nodes/{NodeId.new()}", json={})).status_code == 422


async def test_connectors_come_with_the_schemas_of_their_options(api: Any) -> None:
    connectors = {one["name"]: one for one in (await api.client.get("/connectors")).json()["data"]}
    assert {"impulse", "nexmark", "single_file", "stdout", "blackhole", "preview"} <= connectors.keys()
    assert connectors["impulse"]["source"]["properties"] and connectors["impulse"]["sink"] is None
    assert connectors["postgres"]["lookup"]["properties"]["url"] and connectors["impulse"]["lookup"] is None


async def test_sinks_tell_what_they_guarantee(api: Any) -> None:
    connectors = {one["name"]: one for one in (await api.client.get("/connectors")).json()["data"]}
    assert connectors["single_file"]["guarantee"] == "exactly once"
    assert connectors["stdout"]["guarantee"] == "at least once"
    assert connectors["impulse"]["guarantee"] is None
