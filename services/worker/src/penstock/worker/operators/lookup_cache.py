"""What a lookup table has answered so far: for a time, up to a size, whatever the keys; also that there is no row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.connectors.key_hashes import Mask, key_hashes, same_keys
from penstock.worker.state.index import ABSENT, HashIndex, Int64s

_ROW_BITS: Final = 28  # a location is a page's number and, in so many bits, the number of a row in it
_FULL_ROWS: Final = 1 << 12
# Answers are forgotten ahead of their time, or for want of room, by at most this part of it.
_PAGES: Final = 16


@dataclass(frozen=True, slots=True)
class Answers:
    """What is known of some keys: of each the row, and whether there is one."""

    keys: pa.RecordBatch
    values: pa.RecordBatch
    """Nulls where there is no row."""
    found: Mask

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.values.nbytes + self.found.nbytes)

    def take(self, rows: Int64s) -> Answers:
        """Some of them."""
        places = pa.array(rows)
        return Answers(self.keys.take(places), self.values.take(places), self.found[rows])

    @staticmethod
    def joined(parts: list[Answers]) -> Answers:
        """All of them, at least one part."""
        if len(parts) == 1:
            return parts[0]
        return Answers(
            pa.concat_batches([part.keys for part in parts]),
            pa.concat_batches([part.values for part in parts]),
            np.concatenate([part.found for part in parts]),
        )


@dataclass(slots=True)
class _Page:
    """Answers of about one time, with the hashes of their keys."""

    began_at: float
    hashes: Int64s
    answers: Answers

    @property
    def nbytes(self) -> int:
        # An entry of the index has two numbers, and at most two of three slots are empty.
        return self.answers.nbytes + self.hashes.nbytes * 7


class LookupCache:
    """Pages of answers, the oldest first. What is too old, or too much, goes page by page."""

    def __init__(self, ttl_seconds: float, max_bytes: int, clock: Callable[[], float]) -> None:
        self._ttl_seconds = ttl_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._index = HashIndex()
        self._pages: dict[int, _Page] = {}
        self._next_page = 0

    @property
    def nbytes(self) -> int:
        """How large it is."""
        return sum(page.nbytes for page in self._pages.values())

    @property
    def rows(self) -> int:
        """How many keys are known."""
        return len(self._index)

    def find(self, keys: pa.RecordBatch) -> tuple[Int64s, Answers | None]:
        """Which of distinct keys are known, and the answers in the order of these."""
        self._expire()
        locations = self._index.find(key_hashes(keys))
        known = np.flatnonzero(locations != ABSENT)
        known = known[np.argsort(locations[known], kind="stable")]
        parts: list[Answers] = []
        pages = locations[known] >> _ROW_BITS
        for part in np.split(known, np.flatnonzero(pages[1:] != pages[:-1]) + 1) if known.size else ():
            page = self._pages[int(locations[part[0]]) >> _ROW_BITS]
            parts.append(page.answers.take(locations[part] & ((1 << _ROW_BITS) - 1)))
        if not parts:
            return known, None
        answers = Answers.joined(parts)
        equal = same_keys(keys.take(pa.array(known)), answers.keys)  # two keys may have one hash
        return (known, answers) if equal.all() else (known[equal], answers.take(np.flatnonzero(equal)))

    def add(self, answers: Answers) -> None:
        """Keeps answers of distinct keys that were not known."""
        if self._ttl_seconds <= 0 or not answers.found.size:
            return
        hashes, firsts = np.unique(key_hashes(answers.keys), return_index=True)
        fresh = self._index.find(hashes) == ABSENT
        hashes, answers = hashes[fresh], answers.take(firsts[fresh])
        number, begin = self._file(hashes, answers)
        self._index.insert(hashes, np.arange(begin, begin + hashes.size) | (number << _ROW_BITS))
        while self._pages and self.nbytes > self._max_bytes:
            self._forget(next(iter(self._pages)))

    def _file(self, hashes: Int64s, answers: Answers) -> tuple[int, int]:
        """Puts answers behind those of the newest page, or on a new one; returns the page and the first row there."""
        now = self._clock()
        newest = self._next_page - 1
        page = self._pages.get(newest)
        if page is not None and self._has_room(page, now):
            begin = page.hashes.size
            page.hashes = np.concatenate([page.hashes, hashes])
            page.answers = Answers.joined([page.answers, answers])
            return newest, begin
        self._pages[self._next_page] = _Page(now, hashes, answers)
        self._next_page += 1
        return self._next_page - 1, 0

    def _has_room(self, page: _Page, now: float) -> bool:
        is_full = page.hashes.size >= _FULL_ROWS or page.nbytes >= self._max_bytes / _PAGES
        return not is_full and now - page.began_at < self._ttl_seconds / _PAGES

    def _expire(self) -> None:
        before = self._clock() - self._ttl_seconds
        for number in [number for number, page in self._pages.items() if page.began_at <= before]:
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._index.remove(self._pages.pop(number).hashes)
