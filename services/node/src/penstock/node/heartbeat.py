"""Tells the controller that this node is there, every second and whenever its workers change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

import structlog

from penstock.common.errors import PeerUnavailable, PenstockError
from penstock.common.events import LogEvent
from penstock.common.ids import NodeId, WorkerId

_LONGEST_DELAY_SECONDS: Final = 2.0

log = structlog.get_logger(__name__)


class Controller(Protocol):
    async def register(self, node: NodeId, rpc_address: str, slots: int) -> None: ...

    async def heartbeat(self, node: NodeId, slots_used: int, workers: Iterable[WorkerId]) -> bool:
        """Whether the controller knows this node."""


class Workers(Protocol):
    @property
    def alive(self) -> tuple[int, tuple[WorkerId, ...]]:
        """The slots that are used, and the workers."""

    async def changed(self) -> None: ...


class Heartbeat:
    def __init__(
        self,
        controller: Controller,
        workers: Workers,
        *,
        node: NodeId,
        rpc_address: str,
        slots: int,
        interval: timedelta,
    ) -> None:
        self._controller = controller
        self._workers = workers
        self._node = node
        self._rpc_address = rpc_address
        self._slots = slots
        self._interval = interval
        self._joined = False
        self._failures = 0

    async def check(self) -> None:
        """Raise when the controller has not answered the last heartbeat."""
        if not self._joined:
            raise PeerUnavailable("the controller does not answer")

    async def run(self) -> None:
        """Until cancelled: register, and again with a controller that does not know this node; one beat at a time, so
        that the controller hears of changes in their order."""
        while True:
            try:
                await self._beat()
            except PenstockError as error:
                if self._failures == 0:
                    log.warning(LogEvent.CONTROLLER_AWAY, reason=str(error))
                self._joined = False
                self._failures += 1
                await asyncio.sleep(self._delay_seconds())
            else:
                self._failures = 0
                await self._pause()

    async def _beat(self) -> None:
        joins = not self._joined
        if joins:
            await self._controller.register(self._node, self._rpc_address, self._slots)
        used, workers = self._workers.alive
        self._joined = await self._controller.heartbeat(self._node, used, workers)
        if not self._joined:
            await self._controller.register(self._node, self._rpc_address, self._slots)
            self._joined = await self._controller.heartbeat(self._node, used, workers)
            joins = True
        if joins:
            log.info(LogEvent.CONTROLLER_JOINED, node=self._node, slots=self._slots)

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval.total_seconds()):
                await self._workers.changed()

    def _delay_seconds(self) -> float:
        doublings = min(self._failures - 1, 10)
        return min(self._interval.total_seconds() / 4 * (1 << doublings), _LONGEST_DELAY_SECONDS)
