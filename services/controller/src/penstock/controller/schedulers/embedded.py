"""Workers in the controller's own process: they come from a factory, since services do not import each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import structlog

from penstock.common.errors import PenstockError
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.controller.placement import Shortage, split_evenly
from penstock.controller.records import TaskOwner
from penstock.controller.registry import Registry
from penstock.controller.schedulers.base import WorkerGrant

log = structlog.get_logger(__name__)


class WorkerHandle(Protocol):
    """A worker in this process."""

    async def wait(self) -> None:
        """Return once it has ended; raises what ended it against its will."""

    async def stop(self, *, force: bool) -> None:
        """End it, and return once it has ended."""


WorkerFactory: TypeAlias = Callable[[WorkerId, str], Awaitable[WorkerHandle]]
"""Starts a worker with an id that reports to a controller at an address."""


class EmbeddedScheduler:
    def __init__(
        self,
        start_worker: WorkerFactory,
        *,
        controller: Callable[[], str],
        worker_slots: int,
        registry: Registry,
    ) -> None:
        self._start_worker = start_worker
        self._controller = controller
        self._worker_slots = worker_slots
        self._registry = registry
        self._starting: dict[TaskOwner, list[asyncio.Task[WorkerGrant]]] = {}
        self._handles: dict[TaskOwner, dict[WorkerId, WorkerHandle]] = {}
        self._watchers: set[asyncio.Task[None]] = set()

    async def start_workers(
        self, owner: TaskOwner, slices: int, on_shortage: Callable[[Shortage], None]
    ) -> tuple[WorkerGrant, ...]:
        starting = [
            asyncio.create_task(self._start(owner, WorkerGrant(WorkerId.new(), share)), name=f"start-worker-{owner}")
            for share in split_evenly(slices, self._worker_slots)
        ]
        self._starting[owner] = starting
        return tuple(await asyncio.gather(*(asyncio.shield(task) for task in starting)))

    async def stop_workers(self, owner: TaskOwner, *, force: bool) -> None:
        # A worker that is half started cannot be stopped.
        await asyncio.gather(*self._starting.pop(owner, ()), return_exceptions=True)
        handles = self._handles.pop(owner, {})
        for worker in handles:
            self._registry.release_worker(worker)
        outcomes = await asyncio.gather(
            *(handle.stop(force=force) for handle in handles.values()), return_exceptions=True
        )
        for worker, outcome in zip(handles, outcomes, strict=True):
            if isinstance(outcome, Exception):
                log.error(LogEvent.WORKER_STOP_FAILED, worker=worker, reason=str(outcome) or type(outcome).__name__)

    async def close(self) -> None:
        for owner in [*self._starting, *self._handles]:
            await self.stop_workers(owner, force=True)
        for watcher in tuple(self._watchers):
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _start(self, owner: TaskOwner, grant: WorkerGrant) -> WorkerGrant:
        self._registry.own(grant.worker_id, owner)
        handle = await self._start_worker(grant.worker_id, self._controller())
        self._handles.setdefault(owner, {})[grant.worker_id] = handle
        watcher = asyncio.create_task(self._watch(owner, grant.worker_id, handle), name=f"watch-{grant.worker_id}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return grant

    async def _watch(self, owner: TaskOwner, worker: WorkerId, handle: WorkerHandle) -> None:
        reason = "it ended"
        try:
            await handle.wait()
        except PenstockError as error:
            reason = str(error)
        except Exception as error:
            log.exception(LogEvent.WORKER_EXITED, worker=worker)
            reason = f"it ended with {type(error).__name__}"
        if self._handles.get(owner, {}).pop(worker, None) is not None:
            self._registry.lose_worker(worker, reason)
