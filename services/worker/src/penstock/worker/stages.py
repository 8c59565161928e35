"""The stages of a subtask, each a task of its own so that reading, Spark's work and writing overlap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

import pyarrow as pa

from penstock.connectors.base import Sink, Source
from penstock.worker.channels import Batches, Channel, Inbox
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.outlets import Outlet
from penstock.worker.portions import Portion
from penstock.worker.signals import EndOfData, Pause

# Batches are joined up to this size: joining copies, and the offsets of text have 32 bits.
_JOINED_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Pace:
    """How a subtask cuts its work."""

    batch_rows: int
    channel_rows: int
    linger_seconds: float
    flush_seconds: float


class PlannedFragment(Protocol):
    """What a chain needs of a fragment."""

    async def run(self, *inputs: Sequence[pa.RecordBatch]) -> Batches:
        """Runs the query on a batch of each input; returns one batch per partition."""
        ...

    async def close(self) -> None:
        """Frees what the fragment holds."""
        ...


class Reader:
    """Reads a source into the subtask's inbox; what it refused goes to the dead letters."""

    def __init__(
        self, source: Source, into: Channel, dead_letters: Sequence[Outlet], metrics: SubtaskMetrics, batch_rows: int
    ) -> None:
        self._source = source
        self._into = into
        self._dead_letters = tuple(dead_letters)
        self._metrics = metrics
        self._batch_rows = batch_rows
        self._stopping = False
        self._reading: asyncio.Timeout | None = None

    def stop(self) -> None:
        """Ends the reading, as if the source had ended."""
        if not self._stopping and self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())
        self._stopping = True

    async def run(self) -> None:
        """Reads until the source ends or is stopped."""
        while not self._stopping and await self._read():
            pass
        await self._into.send(EndOfData())
        for outlet in self._dead_letters:
            await outlet.signal(EndOfData())

    async def _read(self) -> bool:
        try:
            async with asyncio.timeout(None) as reading:
                self._reading = reading
                try:
                    read = await self._source.read()
                finally:
                    self._reading = None
        except TimeoutError:
            if not reading.expired():
                raise
            return False
        if read is None:
            return False
        self._metrics.bad_rows += read.bad_rows
        if read.dead_letters is not None:
            for outlet in self._dead_letters:
                await outlet.send((read.dead_letters,))
        for batch in _slices(read.rows, self._batch_rows):
            await self._into.send(batch)
        return True


class Processor:
    """Runs the chain's fragments on what is in the inbox, and passes the results on."""

    def __init__(
        self,
        inbox: Inbox,
        fragments: Sequence[PlannedFragment],
        outlets: Sequence[Outlet],
        sink: Outlet | None,
        metrics: SubtaskMetrics,
        pace: Pace,
    ) -> None:
        self._inbox = inbox
        self._fragments = tuple(fragments)
        self._outlets = tuple(outlets)
        self._sink = sink
        self._metrics = metrics
        self._pace = pace

    async def run(self) -> None:
        """Works until all inputs have ended."""
        loop = asyncio.get_running_loop()
        worked_at = -self._pace.linger_seconds
        paused = True
        while not isinstance(taken := self._inbox.take(self._pace.batch_rows), EndOfData):
            match taken:
                case tuple():
                    paused = False
                    await self._work(taken)
                    worked_at = loop.time()
                case None:
                    if not paused and self._sink is not None:
                        await self._sink.signal(Pause())
                    paused = True
                    await self._inbox.wait()
                    await self._gather(worked_at)
                case Pause():
                    pass
                case _:
                    assert_never(taken)
        for outlet in self._all_outlets():
            await outlet.signal(EndOfData())

    async def _gather(self, worked_at: float) -> None:
        """Small batches that follow each other closely wait for company; one after a quiet time does not."""
        until = worked_at + self._pace.linger_seconds
        if until > asyncio.get_running_loop().time():
            await self._inbox.gather(self._pace.batch_rows, until)

    async def _work(self, batches: Batches) -> None:
        for batch in batches:
            self._metrics.count_in(batch)
        for fragment in self._fragments:
            batches = await fragment.run(batches)
        if not self._fragments:
            batches = _joined(batches)
        for outlet in self._all_outlets():
            await outlet.send(batches)
        if self._sink is None:
            for batch in batches:
                self._metrics.count_out(batch)

    def _all_outlets(self) -> Iterator[Outlet]:
        yield from self._outlets
        if self._sink is not None:
            yield self._sink


class Writer:
    """Writes to a sink; makes rows visible when the stream pauses, and before any has waited too long."""

    def __init__(
        self,
        inbox: Inbox,
        sink: Sink,
        metrics: SubtaskMetrics,
        pace: Pace,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._inbox = inbox
        self._sink = sink
        self._metrics = metrics
        self._pace = pace
        self._now_us = now_us
        self._portion = Portion(pace.batch_rows)
        self._flush_at: float | None = None

    async def run(self) -> None:
        """Writes until the last row is visible."""
        loop = asyncio.get_running_loop()
        while not isinstance(taken := self._inbox.take(self._pace.batch_rows), EndOfData):
            match taken:
                case tuple():
                    if self._flush_at is None:
                        self._flush_at = loop.time() + self._pace.flush_seconds
                    await self._write(taken)
                case Pause():
                    await self._flush()
                case None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(self._flush_at):
                            await self._inbox.wait()
                case _:
                    assert_never(taken)
            if self._flush_at is not None and loop.time() >= self._flush_at:
                await self._flush()
        await self._flush()

    async def _write(self, batches: Batches) -> None:
        for batch in _joined(batches):
            written = 0
            while written < batch.num_rows:
                rows = batch.slice(written, self._portion.rows)
                await self._write_portion(rows)
                written += rows.num_rows

    async def _write_portion(self, rows: pa.RecordBatch) -> None:
        started_at = time.monotonic()
        await self._sink.write(rows)
        self._portion.learn(rows.num_rows, time.monotonic() - started_at)
        self._metrics.count_out(rows)
        if self._metrics.latency is not None:
            self._metrics.latency.observe(rows, self._now_us())

    async def _flush(self) -> None:
        await self._sink.flush()
        self._flush_at = None


def _slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= rows:
        if batch.num_rows:
            yield batch
        return
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _joined(batches: Batches) -> Batches:
    if len(batches) < 2 or sum(batch.nbytes for batch in batches) > _JOINED_BYTES:
        return batches
    return (pa.concat_batches(batches),)
