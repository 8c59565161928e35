"""/connectors, /nodes, /workers and /ping: what the cluster has."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter

from penstock.api.context import InContext, errors
from penstock.api.schemas import Collection, Connector, Node, Ping, UpdateNode, Worker
from penstock.common.ids import NodeId
from penstock.connectors import registry

router = APIRouter(tags=["cluster"])


@router.get("/connectors", responses=errors())
async def list_connectors() -> Collection[Connector]:
    """The systems that tables can be in, with the options of each."""
    return Collection(data=[Connector.model_validate(one) for one in registry.option_schemas()])


@router.get("/nodes", responses=errors())
async def list_nodes(context: InContext) -> Collection[Node]:
    """The machines that workers run on."""
    return Collection(data=await context.cluster.nodes())


@router.get("/nodes/{node_id}", responses=errors(400, 404))
async def get_node(node_id: str, context: InContext) -> Node:
    """One machine, and the jobs that it has."""
    return await context.cluster.node(NodeId(node_id))


@router.patch("/nodes/{node_id}", responses=errors(400, 404))
async def update_node(node_id: str, request: UpdateNode, context: InContext) -> Node:
    """Drain a node, or take that back: its jobs are saved and go on elsewhere, and it is drained when none is left.

    Previews start over. Jobs wait where the other nodes have too few free slots.
    """
    return await context.cluster.drain(NodeId(node_id), request.drain)


@router.get("/workers", responses=errors())
async def list_workers(context: InContext) -> Collection[Worker]:
    """The workers that are up, with the job of each."""
    return Collection(data=await context.store.workers())


@router.get("/ping")
async def ping() -> Ping:
    """Whether the api is up; it needs no token."""
    return Ping(version=version("penstock-api"))
