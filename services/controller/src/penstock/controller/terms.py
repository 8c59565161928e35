"""Leads whenever the election is won, and stops at once when it is lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from penstock.controller.election import Election, Mandate
from penstock.controller.term import Surroundings, Term, lead


class Terms:
    """`present` is the term under way, once its jobs are loaded."""

    def __init__(self, around: Surroundings, election: Election) -> None:
        self._around = around
        self._election = election
        self._closing = AsyncExitStack()
        self._begun = asyncio.Event()
        self.present: Term | None = None

    async def run(self) -> None:
        """Until cancelled, which lets another controller lead."""
        try:
            while True:
                await self._serve(await self._election.won())
        finally:
            await self._election.resign()

    async def settled(self) -> None:
        """Return once this controller leads, or knows who does."""
        await self._election.looked()
        if self._election.leads:
            await self._begun.wait()

    async def close(self) -> None:
        """End the workers that only this process keeps alive."""
        await self._closing.aclose()

    async def _serve(self, mandate: Mandate) -> None:
        leading = asyncio.create_task(
            lead(
                self._around,
                mandate,
                refused=lambda: self._election.refuse(mandate),
                begun=self._begin,
                closing=self._closing,
            ),
            name=f"term-{mandate.generation}",
        )
        losing = asyncio.create_task(mandate.lost.wait(), name="losing")
        try:
            await asyncio.wait({leading, losing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self.present is not None:
                self.present.ended.set()
            self.present = None
            leading.cancel()
            losing.cancel()
            await asyncio.wait({leading, losing})
        if not leading.cancelled():
            leading.result()

    def _begin(self, term: Term) -> None:
        self.present = term
        self._begun.set()
