"""The nodes of the cluster in Postgres: which there are, and which are to be drained."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from penstock.api.schemas import Node
from penstock.api.statements import Statements
from penstock.common.errors import NotFound
from penstock.common.ids import NodeId

# Of nodes that are gone for so long: without a folder of its own, a node is another one each time.
_FORGOTTEN_AFTER: Final = timedelta(days=30)

# One that is drained has nothing left, and the controller knows that nothing may come.
_NODES = """
    SELECT n.id, n.rpc_address, n.slots, n.slots_used, n.registered_at, n.seen_at, j.jobs,
           CASE WHEN d.node_id IS NULL THEN 'active'
                WHEN n.draining AND n.slots_used = 0 AND j.jobs = '{}' THEN 'drained' ELSE 'draining' END AS state,
           CASE WHEN d.node_id IS NULL AND NOT n.draining
                THEN greatest(n.slots - n.slots_used, 0) ELSE 0 END AS slots_free
    FROM nodes n LEFT JOIN node_drains d ON d.node_id = n.id
    CROSS JOIN LATERAL (
      SELECT ARRAY(SELECT DISTINCT w.job_id FROM workers w WHERE w.node_id = n.id AND w.job_id IS NOT NULL
                   ORDER BY w.job_id) AS jobs) j
"""


class ClusterStore(Statements):
    """Nodes, as they are and as they are wanted."""

    async def nodes(self) -> list[Node]:
        return [Node.model_validate(dict(row)) for row in await self._fetch(f"{_NODES} ORDER BY n.id")]

    async def node(self, node: NodeId) -> Node:
        rows = await self._fetch(f"{_NODES} WHERE n.id = $1", node)
        if not rows:
            raise NotFound(f"there is no node {node}", hint="GET /nodes lists those that are registered")
        return Node.model_validate(dict(rows[0]))

    async def drain(self, node: NodeId, wanted: bool) -> Node:
        """Have a node drained, or no longer."""
        await self.node(node)
        async with self._transaction() as connection:
            if wanted:
                await connection.execute("INSERT INTO node_drains VALUES ($1) ON CONFLICT DO NOTHING", node)
            else:
                await connection.execute("DELETE FROM node_drains WHERE node_id = $1", node)
            await connection.execute(
                """
                DELETE FROM node_drains d WHERE d.created_at < now() - $1::interval
                  AND NOT EXISTS (SELECT FROM nodes n WHERE n.id = d.node_id)
                """,
                _FORGOTTEN_AFTER,
            )
        return await self.node(node)
