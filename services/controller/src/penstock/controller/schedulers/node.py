"""Workers on registered nodes, over NodeService."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

import structlog

from penstock.common.errors import PeerUnavailable, PenstockError
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.common.proto import node_pb2 as proto
from penstock.common.proto.node_pb2_grpc import NodeServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.controller.placement import Policy, Share, Shortage, place
from penstock.controller.records import TaskOwner
from penstock.controller.registry import Node, Registry
from penstock.controller.schedulers.base import WorkerGrant

_RETRY_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


class NodeScheduler:
    """A node's word on its slots is final; the registry's is a good guess. A job that is larger than the cluster takes
    it as it is only when no node has come or gone for `share_after`: others may be about to, or be back."""

    def __init__(
        self, registry: Registry, settings: RpcSettings, *, policy: Policy, share_after: timedelta, leads: int = 0
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._policy = policy
        self._share_after = share_after
        self._leads = leads
        self._starting: dict[TaskOwner, list[asyncio.Task[WorkerGrant]]] = {}

    async def start_workers(
        self, owner: TaskOwner, slices: int, on_shortage: Callable[[Shortage], None]
    ) -> tuple[WorkerGrant, ...]:
        while True:
            shares = await self._find_slots(owner, slices, on_shortage)
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
            *(self._stop_on(node, owner, force=force) for node in nodes), return_exceptions=True
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
        self, owner: TaskOwner, slices: int, on_shortage: Callable[[Shortage], None]
    ) -> tuple[Share, ...]:
        told: Shortage | None = None
        while True:
            match place(slices, self._registry.reachable, self._policy):
                case Shortage() as shortage:
                    if shortage != told:
                        on_shortage(shortage)
                    told = shortage
                    await self._registry.capacity_change()
                case shares if any(share.is_tight for share in shares):
                    patience = self._share_after.total_seconds() - self._registry.seconds_unchanged
                    if patience <= 0:
                        slots = sum(share.slots for share in shares)
                        log.info(LogEvent.SLOTS_SHARED, owner=str(owner), slots=slots, slices=slices)
                        return shares
                    with suppress(TimeoutError):
                        async with asyncio.timeout(patience):
                            await self._registry.capacity_change()
                case shares:
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
        with self._suspecting(node):
            async with connect(node.rpc_address, self._settings, leads=self._leads) as channel, calling(self._settings):
                return WorkerId((await NodeServiceStub(channel).StartWorker(request)).worker_id)

    async def _stop_on(self, node: Node, owner: TaskOwner, *, force: bool) -> None:
        with self._suspecting(node):
            async with connect(node.rpc_address, self._settings, leads=self._leads) as channel:
                stub = NodeServiceStub(channel)
                async with calling(self._settings):
                    workers = (await stub.GetWorkers(proto.GetWorkersRequest())).workers
                for worker in workers:
                    if worker.owner == str(owner):
                        async with calling(self._settings):
                            await stub.StopWorker(proto.StopWorkerRequest(worker_id=worker.worker_id, force=force))
                self._registry.note_used(node.id, sum(each.slots for each in workers if each.owner != str(owner)))

    @contextmanager
    def _suspecting(self, node: Node) -> Iterator[None]:
        """One that does not answer is asked for nothing until it is heard of again."""
        try:
            yield
        except PeerUnavailable:
            self._registry.suspect(node.id)
            raise
