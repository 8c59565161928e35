"""For tests: a controller that only listens, and workers that are small scripts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from penstock.common.config import load_config
from penstock.common.errors import PeerUnavailable
from penstock.common.ids import NodeId, WorkerId
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.controller_pb2_grpc import (
    ControllerServiceServicer,
    add_ControllerServiceServicer_to_server,
)
from penstock.common.rpc import RpcSettings
from penstock.common.rpc import serve as serve_rpc

Context = grpc.aio.ServicerContext[Any, Any]

_WORKER = """
import os, pathlib, sys
folder = pathlib.Path({folder!r})
partial = folder / (os.environ["PENSTOCK__WORKER__ID"] + ".partial")
partial.write_text("\\n".join([str(os.getpid()), *(os.environ["PENSTOCK__WORKER__" + key] for key in
    ("NODE_ID", "CONTROLLER", "EXIT_WITH_PARENT"))]))
partial.rename(folder / os.environ["PENSTOCK__WORKER__ID"])
print("worker is up", file=sys.stderr, flush=True)
{more}
sys.stdin.read()
"""


def script_command(folder: Path, more: str = "") -> str:
    """A worker that leaves a file of its name with its pid and environment, and ends when its stdin does."""
    return shlex.join([sys.executable, "-c", _WORKER.format(folder=str(folder), more=more)])


def rpc_settings() -> RpcSettings:
    return load_config(environment={}).section("rpc", RpcSettings)


class Listener:
    """The controller's twin: knows the nodes that registered, and may be away."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, tuple[str, int]] = {}
        self.registrations = 0
        self.beats: list[tuple[int, tuple[WorkerId, ...]]] = []
        self.away = False

    def forget(self) -> None:
        """As a controller that was restarted."""
        self.nodes.clear()

    async def register(self, node: NodeId, rpc_address: str, slots: int) -> None:
        self._answer()
        self.registrations += 1
        self.nodes[node] = (rpc_address, slots)

    async def heartbeat(self, node: NodeId, slots_used: int, workers: Iterable[WorkerId]) -> bool:
        self._answer()
        self.beats.append((slots_used, tuple(workers)))
        return node in self.nodes

    def _answer(self) -> None:
        if self.away:
            raise PeerUnavailable("the twin is away")


class _ListenerRpc(ControllerServiceServicer):
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    async def RegisterNode(self, request: proto.RegisterNodeRequest, context: Context) -> proto.RegisterNodeResponse:
        await self._listener.register(NodeId(request.node_id), request.rpc_address, request.slots)
        return proto.RegisterNodeResponse()

    async def HeartbeatNode(self, request: proto.HeartbeatNodeRequest, context: Context) -> proto.HeartbeatNodeResponse:
        workers = tuple(map(WorkerId, request.worker_ids))
        known = await self._listener.heartbeat(NodeId(request.node_id), request.slots_used, workers)
        return proto.HeartbeatNodeResponse(known=known)


@asynccontextmanager
async def serving_listener(listener: Listener) -> AsyncIterator[str]:
    """The address of a listener over gRPC, while the block lasts."""
    handlers = _ListenerRpc(listener)  # type: ignore[abstract]  # the rest of its methods no node calls
    server = await serve_rpc(
        lambda served: add_ControllerServiceServicer_to_server(handlers, served),
        host="127.0.0.1",
        port=0,
        settings=rpc_settings(),
    )
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.close(0)
