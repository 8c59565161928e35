"""The first stage of a source's subtask: its rows into the subtask's inbox."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from penstock.connectors.base import NONE_HELD, Source, SourceBatch
from penstock.worker.batches import slices
from penstock.worker.channels import Channel
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.outlets import Outlet
from penstock.worker.signals import Barrier, EndOfData, FromPartition, PartitionEnded, PartitionIdle, Positions
from penstock.worker.turns import Turns


class Reader:
    """Reads a source; what it refused goes to the dead letters. Without turns its partitions are all one.

    With `ended`, which is called when there are no more rows, it then waits for the last checkpoint."""

    def __init__(
        self,
        source: Source,
        into: Channel,
        dead_letters: Sequence[Outlet],
        metrics: SubtaskMetrics,
        batch_rows: int,
        turns: Turns | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self._source = source
        self._into = into
        self._dead_letters = tuple(dead_letters)
        self._metrics = metrics
        self._batch_rows = batch_rows
        self._turns = turns
        self._ended = ended
        self._barriers: deque[Barrier] = deque()
        self._last_epoch = 0
        self._asked_for_barrier = asyncio.Event()
        self._partition = 0
        self._held = NONE_HELD
        self._answered_at: float | None = None
        self._stopping = False
        self._reading: asyncio.Timeout | None = None

    def stop(self) -> None:
        """Ends the reading before the source's end."""
        self._stopping = True
        self._interrupt()

    def checkpoint(self, barrier: Barrier) -> None:
        """Puts a barrier behind the rows that have been read; one that it has had already changes nothing."""
        if barrier.epoch > self._last_epoch:
            self._last_epoch = barrier.epoch
            self._barriers.append(barrier)
            self._asked_for_barrier.set()
            self._interrupt()

    def look_again(self) -> None:
        """What is held may have changed: if so, the source is asked anew."""
        if self._turns is not None and self._reading is not None and self._turns.held() != self._held:
            self._interrupt()

    async def run(self) -> None:
        """Reads until the source ends or is stopped; with checkpoints, until the last one has gone through."""
        complete = False
        while not complete and not self._stopping:
            if await self._pass_barriers():
                return
            complete = await self._read()
        await self._signal(EndOfData(complete))
        if self._ended is not None:
            self._ended()
            while not await self._pass_barriers():
                await self._asked_for_barrier.wait()

    async def _pass_barriers(self) -> bool:
        """Passes on the barriers that are asked for; returns whether one is the last."""
        self._asked_for_barrier.clear()
        while self._barriers:
            barrier = self._barriers.popleft()
            await self._into.send(Positions(dict(self._source.positions())))
            await self._signal(barrier)
            if barrier.last:
                return True
        return False

    async def _signal(self, signal: EndOfData | Barrier) -> None:
        for outlet in self._dead_letters:
            await outlet.signal(signal)
        await self._into.send(signal)

    async def _read(self) -> bool:
        """Passes on what comes next; returns whether the source has ended."""
        try:
            read = await (self._ask() if self._turns is None else self._ask_in_turn(self._turns))
        except _Interrupted:
            return False
        if read is None:
            return True
        self._metrics.bad_rows += read.bad_rows
        if read.dead_letters is not None:
            for outlet in self._dead_letters:
                await outlet.send((read.dead_letters,))
        if self._turns is not None and read.rows.num_rows and read.partition != self._partition:
            self._partition = read.partition
            await self._into.send(FromPartition(read.partition))
        for batch in slices(read.rows, self._batch_rows):
            await self._into.send(batch)
        if self._turns is not None:
            await self._note_partitions(self._turns, read.ended)
        return False

    async def _ask_in_turn(self, turns: Turns) -> SourceBatch | None:
        now = asyncio.get_running_loop().time
        self._held = turns.held()
        asked_at = now()
        since_last = 0.0 if self._answered_at is None else asked_at - self._answered_at
        answered = None
        try:
            read = await self._ask(turns.patience(self._held), nobody=turns.holds_all(self._held))
            answered = read.partition if read is not None and read.rows.num_rows else None
            return read
        finally:
            self._answered_at = now()
            for partition in turns.asked(self._held, self._answered_at - asked_at, since_last, answered):
                self._into.offer(PartitionIdle(partition))

    async def _ask(self, patience: float | None = None, *, nobody: bool = False) -> SourceBatch | None:
        try:
            async with asyncio.timeout(patience) as reading:
                self._reading = reading
                try:
                    if nobody:
                        await asyncio.get_running_loop().create_future()
                    return await self._source.read(self._held)
                finally:
                    self._reading = None
        except TimeoutError:
            if not reading.expired():
                raise
            raise _Interrupted from None

    async def _note_partitions(self, turns: Turns, ended: Sequence[int]) -> None:
        for partition in ended:
            turns.end(partition)
            await self._into.send(PartitionEnded(partition))
        turns.grow(self._source.partitions)

    def _interrupt(self) -> None:
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())


class _Interrupted(Exception):
    """Nothing was read, and nothing was lost."""
