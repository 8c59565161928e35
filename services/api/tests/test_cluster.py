from __future__ import annotations

from typing import Any

from penstock.common.ids import NodeId


async def test_nodes_are_listed_with_their_slots(api: Any) -> None:
    await api.pool.execute(
        "INSERT INTO nodes (id, rpc_address, slots, slots_used) VALUES ($1, 'a:1', 4, 1)", NodeId.new()
    )
    nodes = (await api.client.get("/nodes")).json()
    assert [(node["slots"], node["slots_used"]) for node in nodes["data"]] == [(4, 1)]
    assert nodes["has_more"] is False


async def test_connectors_come_with_the_schemas_of_their_options(api: Any) -> None:
    connectors = {one["name"]: one for one in (await api.client.get("/connectors")).json()["data"]}
    assert {"impulse", "nexmark", "single_file", "stdout", "blackhole", "preview"} <= connectors.keys()
    assert connectors["impulse"]["source"]["properties"] and connectors["impulse"]["sink"] is None
