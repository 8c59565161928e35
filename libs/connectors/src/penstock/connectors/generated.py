"""Sources that read nothing: their rows are a function of the rows' numbers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from penstock.connectors.base import NONE_HELD, SourceBatch
from penstock.connectors.pacing import Pacer
from penstock.connectors.shares import Numbers, Share
from penstock.connectors.streams import Stream, deal_streams, frontier

_FEW_ROWS: Final = 1000
"""What is generated sooner than a thread is woken."""


class Rows(Protocol):
    """The rows of numbers; what makes them has no other state than when it began."""

    def begin(self, number: int) -> None:
        """The first read: the row of this number is due now."""
        ...

    def generate(self, numbers: Numbers) -> pa.RecordBatch:
        """The rows of given numbers, in any thread."""
        ...

    def time_us(self, number: int) -> int | None:
        """The event time of a row, if it depends on when the job began, and has."""
        ...


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a subtask begins or goes on."""

    streams: tuple[Stream, ...]
    """Its own, those included that have ended."""
    number: int
    """The row that is due at the start; lower ones were due before."""
    times_us: tuple[tuple[int, int], ...]
    """Numbers of rows and their event times, where the job goes on."""


def beginning(restored: Mapping[str, bytes] | None, own: Share) -> Beginning:
    """A subtask's share of what is left of all streams."""
    positions = [json.loads(position) for position in (restored or {}).values()]
    streams = [Stream(Share(p["subtask"], p["of"], own.block), p["at"], p["end"]) for p in positions]
    times_us = tuple((p["at"], p["time_us"]) for p in positions if p["time_us"] is not None)
    return Beginning(deal_streams(streams, own), frontier(streams), times_us)


class _Streams:
    """A subtask's streams, and how far each has been given away."""

    def __init__(self, streams: Sequence[Stream], total: int | None) -> None:
        self._all = streams
        self._left = [stream.indexes(total) for stream in streams]
        self._partitions = [index for index, left in enumerate(self._left) if left]

    def __len__(self) -> int:
        return len(self._partitions)

    def name(self, partition: int) -> str:
        return self._all[self._partitions[partition]].name

    def next(self, held: frozenset[int]) -> int | None:
        """The one that is furthest behind, of those that are not held if there are any; None when all have ended."""
        going_on = [partition for partition, index in enumerate(self._partitions) if self._left[index]]
        free = [partition for partition in going_on if partition not in held]
        return min(free or going_on, key=self.number, default=None)

    def number(self, partition: int) -> int:
        """Of the next row."""
        return self._number(self._partitions[partition])

    def left_below(self, partition: int, number: int) -> int:
        """How many rows of lower numbers are left."""
        index = self._partitions[partition]
        left = self._left[index]
        return min(self._all[index].share.count_below(number), left.stop) - left.start

    def following(self, partition: int, most: int) -> Numbers:
        """The numbers of the next rows."""
        index = self._partitions[partition]
        left = self._left[index]
        return self._all[index].share.numbers(left.start, min(len(left), most))

    def advance(self, partition: int, count: int) -> tuple[int, ...]:
        """So many rows have been given away; returns the partition if it has ended with them."""
        index = self._partitions[partition]
        self._left[index] = self._left[index][count:]
        return () if self._left[index] else (partition,)

    def positions(self, rows: Rows) -> Mapping[str, bytes]:
        return {stream.name: self._position(index, rows) for index, stream in enumerate(self._all)}

    def _position(self, index: int, rows: Rows) -> bytes:
        stream, at = self._all[index], self._number(index)
        place = {"subtask": stream.share.subtask, "of": stream.share.parallelism}
        return json.dumps({**place, "at": at, "end": stream.end, "time_us": rows.time_us(at)}).encode()

    def _number(self, index: int) -> int:
        return self._all[index].share.number(self._left[index].start)


class GeneratedSource:
    """One subtask's share of numbered rows, as fast as they are asked for."""

    def __init__(self, rows: Rows, start: Beginning, total: int | None, batch_rows: int) -> None:
        self._rows = rows
        self._streams = _Streams(start.streams, total)
        self._first = start.number
        self._batch_rows = batch_rows
        self._ahead: dict[int, asyncio.Future[pa.RecordBatch]] = {}
        self._has_begun = False

    @property
    def partitions(self) -> int:
        return len(self._streams)

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        if not self._has_begun:
            self._rows.begin(self._first)
            self._has_begun = True
        partition = self._streams.next(held)
        if partition is None:
            return None
        rows = await asyncio.shield(self._begin(partition))
        del self._ahead[partition]
        ended = self._streams.advance(partition, rows.num_rows)
        if (following := self._streams.next(held)) is not None:
            self._begin(following)
        return SourceBatch(rows, partition=partition, ended=ended)

    def partition_name(self, partition: int) -> str:
        return self._streams.name(partition)

    def positions(self) -> Mapping[str, bytes]:
        return self._streams.positions(self._rows)

    async def close(self) -> None:
        await asyncio.gather(*self._ahead.values(), return_exceptions=True)

    def _begin(self, partition: int) -> asyncio.Future[pa.RecordBatch]:
        """The next rows of a partition, which are made once: a read that was cancelled leaves them to the next."""
        if partition not in self._ahead:
            numbers = self._streams.following(partition, self._batch_rows)
            self._ahead[partition] = asyncio.ensure_future(asyncio.to_thread(self._rows.generate, numbers))
        return self._ahead[partition]


class PacedSource:
    """One subtask's share of numbered rows, each when it is due."""

    def __init__(self, rows: Rows, start: Beginning, total: int | None, batch_rows: int, pacer: Pacer) -> None:
        self._rows = rows
        self._streams = _Streams(start.streams, total)
        self._first = start.number
        self._batch_rows = batch_rows
        self._pacer = pacer
        self._has_begun = False

    @property
    def partitions(self) -> int:
        return len(self._streams)

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        if not self._has_begun:
            self._rows.begin(self._first)
            self._pacer.begin(self._first)
            self._has_begun = True
        partition = self._streams.next(held)
        if partition is None:
            return None
        await self._pacer.wait_for(self._streams.number(partition))
        due = max(self._streams.left_below(partition, self._pacer.due()), 1)
        numbers = self._streams.following(partition, min(due, self._batch_rows))
        generate = self._rows.generate
        rows = generate(numbers) if len(numbers) <= _FEW_ROWS else await asyncio.to_thread(generate, numbers)
        # Not before: a read that was cancelled generates the same rows again.
        return SourceBatch(rows, partition=partition, ended=self._streams.advance(partition, len(numbers)))

    def partition_name(self, partition: int) -> str:
        return self._streams.name(partition)

    def positions(self) -> Mapping[str, bytes]:
        return self._streams.positions(self._rows)

    async def close(self) -> None:
        return


def generated_source(
    rows: Rows, start: Beginning, *, total: int | None, batch_rows: int, event_rate: float | None
) -> GeneratedSource | PacedSource:
    """A source at a rate, or as fast as possible."""
    if event_rate is None:
        return GeneratedSource(rows, start, total, batch_rows)
    return PacedSource(rows, start, total, batch_rows, Pacer(event_rate))
