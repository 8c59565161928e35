"""Sources that read nothing: their rows are a function of the rows' numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from penstock.connectors.ahead import ReadAhead
from penstock.connectors.base import SourceBatch
from penstock.connectors.pacing import Pacer
from penstock.connectors.shares import Numbers, Share

Generate = Callable[[Numbers], pa.RecordBatch]

_FEW_ROWS: Final = 1000
"""What is generated sooner than a thread is woken."""


class GeneratedSource:
    """One subtask's share of numbered rows, as fast as they are asked for."""

    def __init__(self, generate: Generate, share: Share, total: int | None, batch_rows: int) -> None:
        self._generate = generate
        self._share = share
        self._limit = None if total is None else share.count_below(total)
        self._batch_rows = batch_rows
        self._next = 0
        self._ahead = ReadAhead(self._produce)

    async def read(self) -> SourceBatch | None:
        return await self._ahead.read()

    async def close(self) -> None:
        await self._ahead.close()

    def _produce(self) -> SourceBatch | None:
        count = self._batch_rows if self._limit is None else min(self._batch_rows, self._limit - self._next)
        if count <= 0:
            return None
        rows = self._generate(self._share.numbers(self._next, count))
        self._next += count
        return SourceBatch(rows)


class PacedSource:
    """One subtask's share of numbered rows, each when it is due."""

    def __init__(self, generate: Generate, share: Share, total: int | None, batch_rows: int, pacer: Pacer) -> None:
        self._generate = generate
        self._share = share
        self._limit = None if total is None else share.count_below(total)
        self._batch_rows = batch_rows
        self._pacer = pacer
        self._next = 0

    async def read(self) -> SourceBatch | None:
        if self._limit is not None and self._next >= self._limit:
            return None
        await self._pacer.wait_for(self._share.number(self._next))
        due = max(self._share.count_below(self._pacer.due()), self._next + 1)
        end = due if self._limit is None else min(due, self._limit)
        count = min(end - self._next, self._batch_rows)
        numbers = self._share.numbers(self._next, count)
        rows = self._generate(numbers) if count <= _FEW_ROWS else await asyncio.to_thread(self._generate, numbers)
        self._next += count  # not before: a read that was cancelled generates the same rows again
        return SourceBatch(rows)

    async def close(self) -> None:
        return


def generated_source(
    generate: Generate, share: Share, *, total: int | None, batch_rows: int, event_rate: float | None
) -> GeneratedSource | PacedSource:
    """A source at a rate, or as fast as possible."""
    if event_rate is None:
        return GeneratedSource(generate, share, total, batch_rows)
    return PacedSource(generate, share, total, batch_rows, Pacer(event_rate))
