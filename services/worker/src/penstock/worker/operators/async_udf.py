"""The stage ahead of a chain that begins with an async function: rows leave it with their results.

Many rows are on their way at once, but nothing overtakes a signal: what came before a watermark or a barrier leaves
before it. So a barrier finds nothing here that would have to be saved: rows behind it, though already given to the
function, are of the next checkpoint.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.program import AsyncUdf
from penstock.worker.channels import Inbox, Item
from penstock.worker.outlets import Sender
from penstock.worker.signals import Barrier, EndOfData, Signal


class Caller(Protocol):
    """What calls the function."""

    async def submit(self, batch: pa.RecordBatch) -> None:
        """Has it called for rows."""
        ...

    async def results(self) -> pa.RecordBatch:
        """The next results: `row`, counted from the first that was submitted, and `value`."""
        ...


@dataclass(slots=True)
class _Rows:
    """Rows that were given to the function: how many have no result yet, and those that can leave."""

    first: int
    batch: pa.RecordBatch
    left: int
    ready: list[pa.RecordBatch] = field(default_factory=list)


class AsyncUdfStage:
    """Gives rows to a function, and passes them on when it has answered."""

    def __init__(self, kind: AsyncUdf, output: pa.Schema, caller: Caller, *, has_checkpoints: bool) -> None:
        self._kind = kind
        self._output = output
        self._caller = caller
        self._has_checkpoints = has_checkpoints
        self._most_rows = 2 * kind.in_flight  # so that there is work while results are on their way
        self._queue: deque[_Rows | Signal] = deque()
        self._submitted = 0
        self._left = 0
        self._room = asyncio.Event()
        self._leaving = asyncio.Lock()
        self._settled = asyncio.Event()

    async def run(self, inbox: Inbox, into: Sender) -> None:
        """Works until all inputs have ended; with checkpoints, until the last one."""
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(into), name="results")
                await self._take(inbox, into)
                while self._queue:
                    self._settled.clear()
                    await self._settled.wait()
                async with self._leaving:  # what was chosen last has left
                    reading.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _take(self, inbox: Inbox, into: Sender) -> None:
        while True:
            while self._left >= self._most_rows:
                self._room.clear()
                await self._room.wait()
            match taken := inbox.take(self._most_rows - self._left):
                case tuple():
                    for batch in taken:
                        await self._submit(batch)
                case None:
                    await inbox.wait()
                case _:
                    self._queue.append(taken)
                    await self._leave(into)
                    if self._is_last(taken):
                        return

    def _is_last(self, signal: Signal) -> bool:
        match signal:
            case Barrier(last=last):
                return last
            case EndOfData():
                return not self._has_checkpoints
            case _:
                return False

    async def _submit(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._queue.append(_Rows(self._submitted, batch, batch.num_rows))
        self._submitted += batch.num_rows
        self._left += batch.num_rows
        await self._caller.submit(batch)

    async def _read(self, into: Sender) -> None:
        while True:
            results = await self._caller.results()
            self._note(results)
            await self._leave(into)
            self._left -= results.num_rows
            self._room.set()

    def _note(self, results: pa.RecordBatch) -> None:
        """Puts results beside the rows that they are of."""
        numbers, values = results.column("row").to_numpy(), results.column("value")
        entries = [item for item in self._queue if isinstance(item, _Rows)]
        places = np.searchsorted([entry.first for entry in entries], numbers, side="right") - 1
        for place in np.unique(places):
            entry = entries[place]
            chosen = np.flatnonzero(places == place)
            entry.ready.append(self._joined(entry, numbers[chosen] - entry.first, values.take(pa.array(chosen))))
            entry.left -= chosen.size

    def _joined(self, entry: _Rows, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.RecordBatch:
        begin = int(rows[0])
        is_stretch = int(rows[-1]) - begin + 1 == rows.size and bool((np.diff(rows) == 1).all())
        batch = entry.batch.slice(begin, rows.size) if is_stretch else entry.batch.take(pa.array(rows))
        columns = [values if name == self._kind.result else batch.column(name) for name in self._output.names]
        return pa.record_batch(columns, schema=self._output)

    async def _leave(self, into: Sender) -> None:
        """Passes on what can leave; one after the other, so that what is chosen first goes first."""
        async with self._leaving:
            for item in self._chosen():
                await into.send(item)
        self._settled.set()

    def _chosen(self) -> list[Item]:
        """Takes out of the queue rows with results, up to the first signal that others are still ahead of."""
        chosen: list[Item] = []
        waiting: list[_Rows | Signal] = []
        while self._queue:
            item = self._queue.popleft()
            if isinstance(item, _Rows):
                chosen += item.ready
                item.ready = []
                if item.left:
                    waiting.append(item)
            elif waiting:
                waiting.append(item)
                break
            else:
                chosen.append(item)
        self._queue.extendleft(reversed(waiting))
        return chosen
