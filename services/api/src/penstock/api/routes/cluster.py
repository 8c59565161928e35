"""/connectors, /nodes, /workers and /ping: what the cluster has."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter

from penstock.api.context import InContext, errors
from penstock.api.schemas import Collection, Connector, Node, Ping, Worker
from penstock.connectors import registry

router = APIRouter(tags=["cluster"])


@router.get("/connectors", responses=errors())
async def list_connectors() -> Collection[Connector]:
    """The systems that tables can be in, with the options of each."""
    return Collection(data=[Connector.model_validate(one) for one in registry.option_schemas()])


@router.get("/nodes", responses=errors())
async def list_nodes(context: InContext) -> Collection[Node]:
    """The machines that workers run on."""
    return Collection(data=await context.store.nodes())


@router.get("/workers", responses=errors())
async def list_workers(context: InContext) -> Collection[Worker]:
    """The workers that are up, with the job of each."""
    return Collection(data=await context.store.workers())


@router.get("/ping")
async def ping() -> Ping:
    """Whether the api is up; it needs no token."""
    return Ping(version=version("penstock-api"))
