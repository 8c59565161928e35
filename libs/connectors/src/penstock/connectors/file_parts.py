"""Which files, or which ranges of a file, a subtask reads, at the beginning and where a job goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final
from zlib import crc32

from penstock.connectors.errors import FileError

Restored = Mapping[str, bytes] | None

_HINT: Final = "a job goes on with the file that it was at; start it anew for another"


@dataclass(frozen=True, slots=True)
class FilePart:
    """The lines that begin in a part of a file, and how far they have been read: a partition and its position."""

    path: str
    start: int = 0
    end: int | None = None
    """None for the end of the file, wherever that is when it is opened."""
    offset: int = 0
    """Where reading goes on."""
    lines: int | None = 0
    """How many lines are before that; None when nobody has counted them."""
    ended: bool = False

    @property
    def name(self) -> str:
        path = os.fsencode(self.path).decode(errors="backslashreplace")
        return path if self.end is None else f"{path}@{self.start}-{self.end}"

    @property
    def remaining(self) -> int:
        return 0 if self.end is None else max(self.end - self.offset, 0)

    def advanced(self, offset: int, lines: int | None, *, ended: bool) -> FilePart:
        return replace(self, offset=offset, lines=lines, ended=ended)

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def restored_parts(restored: Restored) -> tuple[FilePart, ...]:
    """All parts of all subtasks, in the order of their places."""
    parts = (FilePart(**json.loads(position)) for position in (restored or {}).values())
    return tuple(sorted(parts, key=lambda part: (part.path, part.offset, part.start)))


def deal_files(found: Iterable[str], known: Sequence[FilePart], subtask: int, parallelism: int) -> tuple[FilePart, ...]:
    """A subtask's files, those included that it only remembers to be at their ends.

    Files that are found when a job goes on are dealt by their names alone: subtasks that look at different moments,
    while files come, still agree on whose each one is."""
    if not known:
        return tuple(FilePart(path) for path in sorted(found))[subtask::parallelism]
    new = sorted(set(found) - {part.path for part in known})
    own = (FilePart(path) for path in new if crc32(os.fsencode(path)) % parallelism == subtask)
    return (*_by_turns(known, subtask, parallelism), *own)


def first_ranges(path: str, size: int, subtask: int, parallelism: int) -> tuple[FilePart, ...]:
    """One of as many equal ranges of a file as there are subtasks, or none if there is nothing in it."""
    start, end = size * subtask // parallelism, size * (subtask + 1) // parallelism
    if start == end and subtask > 0:
        return ()
    lines = 0 if start == 0 else None
    return (FilePart(path, start, end, offset=start, lines=lines, ended=start == end),)


def deal_ranges(path: str, known: Sequence[FilePart], subtask: int, parallelism: int) -> tuple[FilePart, ...]:
    """A subtask's share of what is left of a file, and what it remembers to be read."""
    for part in known:
        if part.path != path:
            raise FileError(part.path, f"the job was at this file, and its table is now {path}", hint=_HINT)
    ended = [part for part in known if part.ended]
    left = [part for part in known if not part.ended]
    return (*ended[subtask::parallelism], *_evenly(left, subtask, parallelism))


def _by_turns(known: Sequence[FilePart], subtask: int, parallelism: int) -> Iterator[FilePart]:
    for ended in (False, True):
        yield from [part for part in known if part.ended is ended][subtask::parallelism]


def _evenly(left: Sequence[FilePart], subtask: int, parallelism: int) -> Iterator[FilePart]:
    """As many parts as the others have, or else as many bytes, for which parts are cut."""
    count, odd = divmod(len(left), parallelism)
    if not odd:
        yield from left[subtask * count : (subtask + 1) * count]
        return
    total = sum(part.remaining for part in left)
    low, high = total * subtask // parallelism, total * (subtask + 1) // parallelism
    before = 0
    for part in left:
        begin, end = max(low - before, 0), min(high - before, part.remaining)
        before += part.remaining
        if begin < end:
            yield _cut(part, part.offset + begin, part.offset + end)


def _cut(part: FilePart, start: int, end: int) -> FilePart:
    """What is left of a part between two places; lines belong to where they begin, so any will do."""
    if (start, end) == (part.offset, part.end):
        return part
    lines = part.lines if start == part.offset else None
    return FilePart(part.path, start, end, offset=start, lines=lines)
