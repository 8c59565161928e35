"""Which nodes are to be drained: found in Postgres, and told to the registry."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Protocol

import structlog

from penstock.common.errors import DatabaseUnavailable
from penstock.common.events import LogEvent
from penstock.common.ids import NodeId
from penstock.controller.registry import Registry

log = structlog.get_logger(__name__)


class DrainStore(Protocol):
    async def node_drains(self) -> frozenset[NodeId]: ...


class Drains:
    def __init__(self, store: DrainStore, registry: Registry, interval: timedelta) -> None:
        self._store = store
        self._registry = registry
        self._interval = interval

    async def run(self, loaded: asyncio.Event) -> None:
        """Look until cancelled; `loaded` is set once it is known where nothing must be placed. While Postgres is away
        everything stays as it was last wanted."""
        away = False
        while True:
            try:
                self._registry.drain(await self._store.node_drains())
                loaded.set()
                away = False
            except DatabaseUnavailable as error:
                if not away:
                    log.warning(LogEvent.DRAINS_UNKNOWN, reason=str(error))
                away = True
            await asyncio.sleep(self._interval.total_seconds())
