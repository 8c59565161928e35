"""A range of a file as blocks of complete lines, with memory bounded whatever the lines are.

A range has the lines that begin in it, so that ranges that meet have every line once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

_SCAN_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Complete lines; the last one of a file may lack its newline."""

    offset: int
    data: memoryview


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


def read_blocks(file: BinaryIO, start: int, end: int, limits: Limits) -> Iterator[Block | LongLine]:
    """The lines that begin from `start` on and before `end`."""
    offset = start if start == 0 else _skip_line(file, start - 1)
    size = limits.block_bytes
    while offset < end:
        # What is behind the last newline is read again with the next block, which costs less than joining the two.
        file.seek(offset)
        room = min(size, end - offset)
        data = file.read(room)
        if (len(data) < room or offset + len(data) >= end) and not data.endswith(b"\n"):
            tail = file.readline(limits.line_bytes + 2)  # the last line of the range, which ends behind it
            data += tail
            if not tail.endswith(b"\n") and len(tail) < limits.line_bytes + 2:
                if data:
                    yield Block(offset, memoryview(data))
                return
        newline = data.rfind(b"\n")
        if newline >= 0:
            yield Block(offset, memoryview(data)[: newline + 1])
            offset, size = offset + newline + 1, limits.block_bytes
        elif len(data) > limits.line_bytes:
            yield LongLine(offset, data[: limits.head_bytes])
            offset, size = _skip_line(file, offset + len(data)), limits.block_bytes
        else:
            size *= 2


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
