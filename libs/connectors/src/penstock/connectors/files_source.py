"""Reads one subtask's share of files of JSON lines: partitions that are files, or ranges of one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from penstock.connectors.base import NONE_HELD, DecodeOptions, SourceBatch, TableSpec
from penstock.connectors.file_parts import FilePart
from penstock.connectors.file_range import FileRange, LineTable, Progress

MAX_OPEN_FILES: Final = 8
"""Of one subtask, however many files it reads."""
_KEPT_PORTIONS: Final = 4
_FIRST_BLOCK: Final = 64 * 1024
"""What is read of each file before any is read on: rows that are far ahead of others wait in windows for them."""


@dataclass(frozen=True, slots=True)
class _Portion:
    """What comes next in a partition, and how far that gets; None at its end."""

    batch: SourceBatch
    after: Progress | None
    position: FilePart


class FilesSource:
    """Files that give their rows in turn, a block at a time.

    Whoever reads may change its mind about which files are held while one is read. What was read of it then is kept,
    for a few files, or else forgotten and read again: a file's progress moves only when its rows are given away."""

    def __init__(self, spec: TableSpec, options: DecodeOptions, deal: Callable[[], Sequence[FilePart]]) -> None:
        """`deal` looks for the subtask's files; some of them may have ended before."""
        self._table = LineTable(spec, options)
        self._deal = deal
        self._ranges: tuple[FileRange, ...] | None = None
        self._names: tuple[str, ...] = ()
        self._positions: dict[str, bytes] = {}
        self._turns: OrderedDict[int, Progress | None] = OrderedDict()  # whose turn is next comes first
        self._kept: OrderedDict[int, _Portion] = OrderedDict()
        self._open: OrderedDict[int, FileRange] = OrderedDict()
        self._reading: asyncio.Future[tuple[int, _Portion]] | None = None

    @property
    def partitions(self) -> int:
        return len(self._dealt())

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        self._dealt()
        if not self._turns:
            return None
        partition = self._next(held)
        while partition not in self._kept:
            if self._reading is None:
                self._reading = self._begin(partition)
            number, portion = await asyncio.shield(self._reading)
            self._reading = None
            self._keep(number, portion)
        portion = self._kept.pop(partition)
        self._advance(partition, portion)
        if self._reading is None and self._turns and (following := self._next(held)) not in self._kept:
            self._reading = self._begin(following)
        return portion.batch if self._turns or _says_anything(portion.batch) else None

    def partition_name(self, partition: int) -> str:
        self._dealt()
        return self._names[partition]

    def positions(self) -> Mapping[str, bytes]:
        self._dealt()
        return dict(self._positions)

    async def close(self) -> None:
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)
        self._table.close()
        for file in self._open.values():
            file.close()

    def _dealt(self) -> tuple[FileRange, ...]:
        """What this subtask reads, found when it is first asked for."""
        if self._ranges is None:
            parts = self._deal()
            going_on = [part for part in parts if not part.ended]
            self._positions = {part.name: part.encode() for part in parts}
            self._names = tuple(part.name for part in going_on)
            self._ranges = tuple(FileRange(self._table, part) for part in going_on)
            self._turns.update(dict.fromkeys(range(len(going_on))))
        return self._ranges

    def _next(self, held: frozenset[int]) -> int:
        return next((partition for partition in self._turns if partition not in held), next(iter(self._turns)))

    def _advance(self, partition: int, portion: _Portion) -> None:
        self._positions[self._names[partition]] = portion.position.encode()
        if portion.after is None:
            del self._turns[partition]
        else:
            self._turns[partition] = portion.after
            self._turns.move_to_end(partition)

    def _keep(self, partition: int, portion: _Portion) -> None:
        self._kept[partition] = portion
        if len(self._kept) > _KEPT_PORTIONS:
            self._kept.popitem(last=False)

    def _begin(self, partition: int) -> asyncio.Future[tuple[int, _Portion]]:
        reading = partial(self._read, partition, self._turns[partition])
        return asyncio.ensure_future(asyncio.to_thread(reading))

    def _read(self, partition: int, progress: Progress | None) -> tuple[int, _Portion]:
        """In a thread, of which there is one at a time."""
        file = self._opened(partition)
        is_first_of_many = progress is None and self.partitions > 1
        found = file.read(progress, _FIRST_BLOCK if is_first_of_many else None)
        batch, after = found or (SourceBatch(self._table.no_rows()), None)
        position = file.position(after)
        if position.ended:
            self._open.pop(partition).close()
            return partition, _Portion(replace(batch, partition=partition, ended=(partition,)), None, position)
        return partition, _Portion(replace(batch, partition=partition), after, position)

    def _opened(self, partition: int) -> FileRange:
        file = self._open.pop(partition, None) or self._dealt()[partition]
        self._open[partition] = file
        if len(self._open) > MAX_OPEN_FILES:
            _, least_recent = self._open.popitem(last=False)
            least_recent.close()
        return file


def _says_anything(batch: SourceBatch) -> bool:
    return batch.rows.num_rows > 0 or batch.bad_rows > 0
