"""Keeps the tables of nodes and workers like the registry, for the api to show; best effort."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from penstock.common.errors import DatabaseUnavailable
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.controller.registry import Registry
from penstock.controller.store import NodeRow, WorkerRow

_INTERVAL_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class MirrorStore(Protocol):
    async def mirror(self, nodes: Sequence[NodeRow], workers: Sequence[WorkerRow]) -> None: ...


class Mirror:
    def __init__(
        self,
        store: MirrorStore,
        registry: Registry,
        count_tasks: Callable[[WorkerId], int],
        clock: Callable[[], float],
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._registry = registry
        self._count_tasks = count_tasks
        self._clock = clock
        self._wall_clock = wall_clock

    async def run(self) -> None:
        """Write every second until cancelled."""
        away = False
        while True:
            try:
                await self._store.mirror(self._nodes(), self._workers())
                away = False
            except DatabaseUnavailable as error:
                if not away:
                    log.warning(LogEvent.MIRROR_FAILED, reason=str(error))
                away = True
            await asyncio.sleep(_INTERVAL_SECONDS)

    def _nodes(self) -> list[NodeRow]:
        nodes = self._registry.nodes
        return [
            NodeRow(
                each.node_id,
                nodes[each.node_id].rpc_address,
                each.slots,
                each.slots - each.free,
                each.draining,
                self._at(nodes[each.node_id].seen_at),
            )
            for each in self._registry.capacities
        ]

    def _workers(self) -> list[WorkerRow]:
        owners = self._registry.owners
        return [
            WorkerRow(
                worker.id,
                worker.node_id,
                worker.rpc_address,
                owners.get(worker.id),
                self._count_tasks(worker.id),
                self._at(worker.seen_at),
            )
            for worker in self._registry.workers.values()
        ]

    def _at(self, seen_at: float) -> datetime:
        return self._wall_clock() - timedelta(seconds=self._clock() - seen_at)
