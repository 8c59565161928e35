"""Workers on registered nodes, over NodeService."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from penstock.common.errors import PeerUnavailable, PenstockError
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.common.proto import node_pb2 as proto
from penstock.common.proto.node_pb2_grpc import NodeServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.controller.placement import Demand, Share, Shortage, place
from penstock.controller.records import TaskOwner
from penstock.controller.registry import Registry
from penstock.controller.schedulers.base import WorkerGrant

_RETRY_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


class NodeScheduler:
    """A node's word on its slots is final; the registry's is a good guess."""

    def __init__(self, registry: Registry, settings: RpcSettings) -> None:
        self._registry = registry
        self._settings = settings
        self._starting: dict[TaskOwner, list[asyncio.Task[WorkerGrant]]] = {}

    async def start_workers(
        self, owner: TaskOwner, demand: Demand, on_shortage: Callable[[Shortage], None]
    ) -> tuple[WorkerGrant, ...]:
        while True:
            shares = await self._find_slots(owner, demand, on_shortage)
            for share in shares:
                self._registry.hold(share.node_id, share.slots)
            # Tasks of their own: a start that is cut off would leave a worker that nobody knows of.
            starting = [
                asyncio.create_task(self._start(owner, share), name=f"start-worker-{owner}") for share in shares
            ]
            self._starting[owner] = starting
            await asyncio.wait(starting)
            failed = [error for task in starting if (error := task.exception())]
            if not failed:
                return tuple(task.result() for task in starting)
            for error in failed:
                if not isinstance(error, PenstockError):
                    raise error
                log.warning(LogEvent.WORKER_START_FAILED, owner=str(owner), reason=str(error))
            await self.stop_workers(owner, force=True)
            await asyncio.sleep(_RETRY_SECONDS)

    async def stop_workers(self, owner: TaskOwner, *, force: bool) -> None:
        # What is being started cannot be stopped before it is known.
        await asyncio.gather(*self._starting.pop(owner, ()), return_exceptions=True)
        nodes = tuple(self._registry.nodes.values())
        outcomes = await asyncio.gather(
            *(self._stop_on(node.rpc_address, owner, force=force) for node in nodes), return_exceptions=True
        )
        for node, outcome in zip(nodes, outcomes, strict=True):
            if isinstance(outcome, PenstockError):
                # Its workers are fenced: they end when they next report.
                log.warning(LogEvent.WORKER_STOP_FAILED, node=node.id, owner=str(owner), reason=str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
        for worker in [worker for worker, owned in self._registry.owners.items() if owned == owner]:
            self._registry.release_worker(worker)

    async def close(self) -> None:
        """Workers on nodes outlive the controller."""

    async def _find_slots(
        self, owner: TaskOwner, demand: Demand, on_shortage: Callable[[Shortage], None]
    ) -> tuple[Share, ...]:
        told: Shortage | None = None
        while True:
            match place(demand, self._registry.capacities):
                case Shortage() as shortage:
                    if shortage != told:
                        on_shortage(shortage)
                    told = shortage
                    await self._registry.capacity_change()
                case shares:
                    if any(share.slots < len(share.slices) for share in shares):
                        log.info(LogEvent.SLOTS_SHARED, owner=str(owner), slots=shares[0].slots, slices=demand.slices)
                    return shares

    async def _start(self, owner: TaskOwner, share: Share) -> WorkerGrant:
        try:
            worker = await self._ask_for_worker(owner, share)
            self._registry.grant(worker, share.node_id, share.slots)
            self._registry.own(worker, owner)
        finally:
            self._registry.unhold(share.node_id, share.slots)
        return WorkerGrant(worker, share.slices)

    async def _ask_for_worker(self, owner: TaskOwner, share: Share) -> WorkerId:
        node = self._registry.nodes.get(share.node_id)
        if node is None:
            raise PeerUnavailable(f"node {share.node_id} is gone")
        request = proto.StartWorkerRequest(owner=str(owner), slots=share.slots)
        async with connect(node.rpc_address, self._settings) as channel, calling(self._settings):
            return WorkerId((await NodeServiceStub(channel).StartWorker(request)).worker_id)

    async def _stop_on(self, address: str, owner: TaskOwner, *, force: bool) -> None:
        async with connect(address, self._settings) as channel:
            node = NodeServiceStub(channel)
            async with calling(self._settings):
                workers = (await node.GetWorkers(proto.GetWorkersRequest())).workers
            for worker in workers:
                if worker.owner == str(owner):
                    async with calling(self._settings):
                        await node.StopWorker(proto.StopWorkerRequest(worker_id=worker.worker_id, force=force))
