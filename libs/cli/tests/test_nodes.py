from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.cli.client import RequestRefused
from penstock.common.ids import NodeId
from penstock.common.testing import eventually


@pytest.fixture
async def node(api: Any) -> NodeId:
    node = NodeId.new()
    sql = "INSERT INTO nodes (id, rpc_address, slots, slots_used) VALUES ($1, 'a:1', 4, 3)"
    await api.pool.execute(sql, node)
    return node


async def is_wanted(api: Any, node: NodeId) -> bool:
    return bool(await api.pool.fetchval("SELECT count(*) FROM node_drains WHERE node_id = $1", node))


async def test_drain_waits_until_nothing_is_left_and_tells_how_much_is(command: Any, api: Any, node: NodeId) -> None:
    draining = asyncio.create_task(command("nodes", "drain", node))
    await eventually(lambda: is_wanted(api, node))
    listed = json.loads((await command("nodes", "list", "--json")).out)["data"]
    (found,) = (one for one in listed if one["id"] == node)
    assert (found["state"], found["slots_free"]) == ("draining", 0)
    assert not draining.done()
    await api.pool.execute("UPDATE nodes SET draining = true, slots_used = 0 WHERE id = $1", node)
    drained = await draining
    assert drained.code == 0 and "drained" in drained.out
    assert drained.err.splitlines()[0] == f"{node}: 0 jobs and 3 slots to go"
    assert "active" in (await command("nodes", "undrain", node)).out
    assert not await is_wanted(api, node)


async def test_drain_that_is_taken_back_is_a_failure(command: Any, api: Any, node: NodeId) -> None:
    draining = asyncio.create_task(command("nodes", "drain", node))
    await eventually(lambda: is_wanted(api, node))
    await command("nodes", "undrain", node)
    taken_back = await draining
    assert taken_back.code == 1 and "no longer" in taken_back.err


async def test_drain_need_not_be_waited_for(command: Any, api: Any, node: NodeId) -> None:
    assert json.loads((await command("nodes", "drain", node, "--no-wait", "--json")).out)["state"] == "draining"
    with pytest.raises(RequestRefused, match="there is no node"):
        await command("nodes", "drain", NodeId.new())
