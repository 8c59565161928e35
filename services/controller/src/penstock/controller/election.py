"""Keeps the lease, or waits for it: the one loop that decides whether this controller leads.

    Following ── lease taken ──▶ Leading ── renewal or a write refused ──▶ Ending ── term has ended ──▶ Following

A leader that cannot reach Postgres is unsure and leads on: while Postgres is away nobody can take over, and if only
this controller is cut off, nothing that it decides can take effect (docs/decisions/0015).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from penstock.common.errors import DatabaseUnavailable, NotLeader
from penstock.common.events import LogEvent
from penstock.controller.lease import Lease, resolve_claim, resolve_release, resolve_renewal

log = structlog.get_logger(__name__)


class LeaseStore(Protocol):
    async def look(self) -> tuple[Lease, datetime]: ...

    async def swap(self, seen: Lease, wanted: Lease) -> bool: ...


@dataclass(eq=False, slots=True)
class Mandate:
    """One time that this controller leads."""

    generation: int
    lost: asyncio.Event = field(default_factory=asyncio.Event)


class Election:
    def __init__(
        self,
        store: LeaseStore,
        own_id: str,
        address: Callable[[], str],
        *,
        lasts: timedelta,
        interval: timedelta,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._own_id = own_id
        self._address = address
        self._lasts = lasts
        self._interval = interval.total_seconds()
        self._clock = clock
        self._mandate: Mandate | None = None
        self._known: Lease | None = None
        self._renewed_at = 0.0
        self._reachable = True
        self._unsure = False
        self._hurry = asyncio.Event()
        self._looked = asyncio.Event()
        self._won: asyncio.Future[Mandate] | None = None
        self.refused_writes = 0

    # What others want to know

    @property
    def leads(self) -> bool:
        return self._mandate is not None and not self._mandate.lost.is_set()

    @property
    def generation(self) -> int:
        """Of the newest leader that is known of."""
        return 0 if self._known is None else self._known.generation

    @property
    def leader(self) -> str:
        """Where the leader is; empty while that is not known."""
        known = self._known
        if known is None or (known.holder == self._own_id and not self.leads):
            return ""
        return known.address

    @property
    def is_unsure(self) -> bool:
        """Whether another may have taken over, for all that this controller knows."""
        return self.leads and self._clock() - self._renewed_at > self._lasts.total_seconds()

    def refusal(self) -> NotLeader:
        """What whoever asks this controller is told while another leads."""
        if self.leader:
            return NotLeader(f"this controller does not lead, the one at {self.leader} does", leader=self.leader)
        return NotLeader("this controller does not lead, and it is not known which does")

    async def looked(self) -> None:
        """Return once it is known who leads."""
        await self._looked.wait()

    # Leading

    async def won(self) -> Mandate:
        """Wait until this controller leads. The lease is not taken while nobody waits here."""
        self._mandate = None
        self._won = asyncio.get_running_loop().create_future()
        self._hurry.set()
        return await self._won

    def refuse(self, mandate: Mandate) -> None:
        """A write of this leader was refused."""
        self.refused_writes += 1
        self._lose(mandate)

    async def resign(self) -> None:
        """Let another lead at once, if Postgres can be told so."""
        mandate = self._mandate
        if mandate is not None and not mandate.lost.is_set():
            mandate.lost.set()
            with suppress(DatabaseUnavailable):
                lease, now = await self._store.look()
                released = resolve_release(lease, mandate.generation, now)
                if released is not None:
                    await self._store.swap(lease, released)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._step()
                self._reachable = True
            except DatabaseUnavailable as error:
                self._reachable = False
                self._note_doubt(str(error))
            if self._known is not None:
                self._looked.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._hurry.wait()
            self._hurry.clear()

    async def _step(self) -> None:
        asked_at = self._clock()
        lease, now = await self._store.look()
        mandate, won = self._mandate, self._won
        if mandate is not None:
            if not mandate.lost.is_set():
                await self._renew(mandate, lease, now, asked_at)
            return
        self._follow(lease)
        claimed = resolve_claim(lease, self._own_id, self._address(), now, self._lasts)
        # After an outage its holder comes first: all found it run out, and a change of leaders would be for nothing.
        if claimed is not None and won is not None and self._reachable and await self._store.swap(lease, claimed):
            self._win(claimed, asked_at, won)

    async def _renew(self, mandate: Mandate, lease: Lease, now: datetime, asked_at: float) -> None:
        renewed = resolve_renewal(lease, mandate.generation, now, self._lasts)
        if renewed is None or not await self._store.swap(lease, renewed):
            self._lose(mandate)
            return
        self._known, self._renewed_at = renewed, asked_at
        if self._unsure:
            log.info(LogEvent.LEASE_SURE, generation=mandate.generation)
        self._unsure = False

    def _win(self, lease: Lease, asked_at: float, won: asyncio.Future[Mandate]) -> None:
        log.info(LogEvent.LEADING, generation=lease.generation, address=lease.address)
        self._known, self._renewed_at, self._unsure = lease, asked_at, False
        self._mandate, self._won = Mandate(lease.generation), None
        if not won.cancelled():
            won.set_result(self._mandate)

    def _lose(self, mandate: Mandate) -> None:
        if not mandate.lost.is_set():
            log.warning(LogEvent.LEASE_LOST, generation=mandate.generation)
            mandate.lost.set()

    def _follow(self, lease: Lease) -> None:
        changed = self._known is None or lease.generation != self._known.generation
        self._known = lease
        if changed and lease.generation and lease.holder != self._own_id:
            log.info(LogEvent.FOLLOWING, leader=lease.address, generation=lease.generation)

    def _note_doubt(self, reason: str) -> None:
        if self.is_unsure and not self._unsure:
            self._unsure = True
            log.warning(LogEvent.LEASE_UNSURE, generation=self.generation, reason=reason)
