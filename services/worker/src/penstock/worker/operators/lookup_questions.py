"""Questions to a lookup table: some keys at a time, some at once, each tried again with backoff when it fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.common.errors import ExternalError, PenstockError, RetryHint, UserError
from penstock.connectors.errors import LookupFailed
from penstock.connectors.lookups import LookupTable
from penstock.worker.metrics import LookupCounters
from penstock.worker.operators.difference import row_ids
from penstock.worker.operators.lookup_cache import Answers

_FIRST_BACKOFF_SECONDS: Final = 0.1
_LONGEST_BACKOFF_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Manners:
    """How a table is asked."""

    batch_keys: int
    in_flight: int
    retries: int
    timeout_seconds: float


class Questions:
    """Asks one table."""

    def __init__(
        self,
        name: str,
        table: LookupTable,
        manners: Manners,
        counters: LookupCounters,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._table = table
        self._manners = manners
        self._counters = counters
        self._sleep = sleep
        self._turns = asyncio.Semaphore(manners.in_flight)

    async def ask(self, keys: pa.RecordBatch) -> list[Answers]:
        """What the table has for distinct keys, in their order. The first question that fails for good ends all."""
        size = self._manners.batch_keys
        parts = [keys.slice(begin, size) for begin in range(0, keys.num_rows, size)]
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._in_turn(part), name=f"look up {self._name}") for part in parts]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in asked]

    async def _in_turn(self, keys: pa.RecordBatch) -> Answers:
        async with self._turns:
            rows = await self._tried(keys)
        return self._answers(keys, rows)

    async def _tried(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        backoff = _FIRST_BACKOFF_SECONDS
        for attempt in range(self._manners.retries + 1):
            try:
                self._counters.lookups += keys.num_rows
                async with asyncio.timeout(self._manners.timeout_seconds):
                    return await self._table.look_up(keys)
            except TimeoutError:
                error: PenstockError = ExternalError(f"no answer within {self._manners.timeout_seconds:g} s")
            except ExternalError as failure:
                error = failure
            self._counters.failures += 1
            if attempt == self._manners.retries or error.retry is RetryHint.NEVER:
                break
            await self._sleep(backoff * random.uniform(0.5, 1.0))
            backoff = min(2 * backoff, _LONGEST_BACKOFF_SECONDS)
        raise LookupFailed(self._name, error.message, attempt + 1, retry=error.retry) from error

    def _answers(self, keys: pa.RecordBatch, rows: pa.RecordBatch) -> Answers:
        """The rows in the order of the keys that they are of."""
        count = keys.num_rows
        own = rows.select(keys.schema.names)
        columns = [pa.concat_arrays([asked, given]) for asked, given in zip(keys.columns, own.columns, strict=True)]
        places = row_ids(columns, count + rows.num_rows)[count:]  # distinct keys have the numbers of their places
        if places.size and int(places.max()) >= count:
            raise UserError(f"table {self._name}: a row was found that is of none of the keys")
        row_of = np.full(count, -1, np.int64)
        row_of[places] = np.arange(places.size)
        if np.count_nonzero(row_of >= 0) < places.size:
            raise UserError(
                f"table {self._name}: a key has several rows",
                hint="a PRIMARY KEY tells rows apart: add a column to it",
            )
        return Answers(keys, taken(rows, row_of), row_of >= 0)


def taken(rows: pa.RecordBatch, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
    """Rows by their places, with nulls where that is negative."""
    indexes = pa.array(places, mask=places < 0)
    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    return pa.RecordBatch.from_arrays([column.take(indexes) for column in rows.columns], schema=schema)
