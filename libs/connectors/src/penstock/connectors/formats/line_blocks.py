"""A range of a file as blocks of complete lines, with memory bounded whatever the lines are.

A range has the lines that begin in it, so that ranges that meet have every line once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

_SCAN_BYTES: Final = 1024 * 1024
_LOOK_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Complete lines, which are read when they are asked for; the last one of a file may lack its newline."""

    file: BinaryIO
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    @property
    def path(self) -> str:
        """Where other processes find the very file that is open here, whatever its name has become."""
        return f"/proc/{os.getpid()}/fd/{self.file.fileno()}"

    def read(self) -> bytes:
        self.file.seek(self.offset)
        return self.file.read(self.length)

    def behind(self, length: int) -> FileBlock:
        """Without its first bytes."""
        return FileBlock(self.file, self.offset + length, self.length - length)


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line over the limit, of which only the beginning was kept."""

    offset: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read at a time, how long a line may be, and how much is kept of a longer one."""

    block_bytes: int
    line_bytes: int
    head_bytes: int


def find_blocks(file: BinaryIO, start: int, end: int, limits: Limits) -> Iterator[FileBlock | LongLine]:
    """The lines that begin from `start` on and before `end`. Of most blocks only the end is looked at here."""
    offset = start if start == 0 else _skip_line(file, start - 1)
    while offset < end:
        limit = min(offset + limits.block_bytes, end)
        stop = _last_line_end(file, offset, limit)
        if stop == offset or (limit == end and stop < end):  # a line goes on behind the limit
            file.seek(stop)
            line = file.readline(limits.line_bytes + 2)
            if line.endswith(b"\n") or len(line) < limits.line_bytes + 2:
                stop += len(line)
            elif stop == offset:
                yield LongLine(offset, line[: limits.head_bytes])
                offset = _skip_line(file, offset + len(line))
                continue
        if stop == offset:  # the file became shorter
            return
        yield FileBlock(file, offset, stop - offset)
        offset = stop


def _last_line_end(file: BinaryIO, start: int, end: int) -> int:
    """Behind the last newline of a range; its start when there is none."""
    while start < end:
        begin = max(start, end - _LOOK_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return start


def count_lines(file: BinaryIO, end: int) -> int:
    """How many lines end before a position."""
    file.seek(0)
    count = 0
    while end > 0 and (data := file.read(min(_SCAN_BYTES, end))):
        count += data.count(b"\n")
        end -= len(data)
    return count


def _skip_line(file: BinaryIO, position: int) -> int:
    """Where the line after the one at a position begins."""
    file.seek(position)
    while data := file.read(_SCAN_BYTES):
        newline = data.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(data)
    return position
