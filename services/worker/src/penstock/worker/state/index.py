"""Where the rows of each hash are: a hash table in numpy, whose work is done for arrays of hashes at a time."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]

ABSENT: Final = -1
"""The location of a hash that is not there."""
_EMPTY: Final = -1
_REMOVED: Final = -2
_LEAST_BITS: Final = 10
# Spreads hashes that differ only in some bits: the table's place is the product's highest bits (Fibonacci hashing).
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


def distinct(hashes: Int64s) -> Int64s:
    """Each hash once, in order. (numpy's `unique` has a hash table of them, which takes four times as long.)"""
    ordered = np.sort(hashes)
    is_first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def are_among(hashes: Int64s, others: Int64s) -> npt.NDArray[np.bool_]:
    """Which hashes are among others."""
    if not others.size:
        return np.zeros(hashes.size, np.bool_)
    ordered = np.sort(others)
    found: npt.NDArray[np.bool_] = ordered.take(np.searchsorted(ordered, hashes), mode="clip") == hashes
    return found


class HashIndex:
    """Hash to location (not negative), by open addressing with linear probing.

    A slot is a pair (hash, location) in one row of the table, so that a probe touches one line of the cache. At most
    half of the slots are taken; removed ones count as taken until the table is built anew, at a constant cost a change.
    """

    def __init__(self) -> None:
        self._bits = _LEAST_BITS
        self._slots = _empty_slots(self._bits)
        self._taken = 0  # slots that are not empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The memory of the table."""
        return int(self._slots.nbytes)

    def find(self, hashes: Int64s) -> Int64s:
        """The location of each hash, or `ABSENT`."""
        slots = self._find_slots(hashes)
        return np.where(slots < 0, ABSENT, self._slots[:, 1][slots])

    def remove(self, hashes: Int64s) -> Int64s:
        """Removes those of the distinct hashes that are there; returns their locations."""
        slots = self._find_slots(hashes)
        slots = slots[slots >= 0]
        locations = self._slots[:, 1][slots]
        self._empty(slots)
        return locations

    def move(self, hashes: Int64s, locations: Int64s) -> None:
        """Gives hashes that are there other locations."""
        self._slots[:, 1][self._find_slots(hashes)] = locations

    def replace(self, hashes: Int64s, locations: Int64s) -> None:
        """Gives distinct hashes that are there other locations, and removes those whose location is `ABSENT`."""
        slots = self._find_slots(hashes)
        stays = locations != ABSENT
        self._slots[:, 1][slots[stays]] = locations[stays]
        self._empty(slots[~stays])

    def insert(self, hashes: Int64s, locations: Int64s) -> None:
        """Puts in distinct hashes that are not there, with distinct locations."""
        self.reserve(hashes.size)
        self._count += hashes.size
        self._place(hashes, locations)

    def put(self, hashes: Int64s, locations: Int64s) -> Int64s:
        """Gives distinct hashes distinct locations, whether they are there or not; returns those that they had."""
        slots = self._find_slots(hashes)
        is_there = slots >= 0
        there = slots[is_there]
        former = self._slots[:, 1][there]
        self._slots[:, 1][there] = locations[is_there]
        self.insert(hashes[~is_there], locations[~is_there])
        return former

    def reserve(self, more: int) -> None:
        """Makes room for so many more at once, instead of again and again as they come."""
        if (self._taken + more) * 2 > len(self._slots):
            self._rebuild(more)

    def _empty(self, slots: Int64s) -> None:
        self._slots[:, 1][slots] = _REMOVED
        self._count -= slots.size
        if self._bits > _LEAST_BITS and self._count < len(self._slots) >> 4:
            self._rebuild(0)

    def _find_slots(self, hashes: Int64s) -> Int64s:
        """The slot of each hash, or a negative number."""
        found = np.full(hashes.size, ABSENT, np.int64)
        pending = np.arange(hashes.size)
        slots = self._homes(hashes)
        while pending.size:
            probed = self._slots.take(slots, axis=0)
            held, location = probed[:, 0], probed[:, 1]
            hit = (held == hashes) & (location >= 0)
            found[pending[hit]] = slots[hit]
            further = ~hit & (location != _EMPTY)
            pending, hashes = pending[further], hashes[further]
            slots = self._next(slots[further])
        return found

    def _place(self, hashes: Int64s, locations: Int64s) -> None:
        held = self._slots[:, 1]
        slots = self._homes(hashes)
        while hashes.size:
            before = held[slots]
            free = before < 0
            # All write at once and the last one stays: who reads back its own location has the slot.
            held[slots[free]] = locations[free]
            won = np.zeros_like(free)
            won[free] = held[slots[free]] == locations[free]
            self._slots[:, 0][slots[won]] = hashes[won]
            self._taken += int(np.count_nonzero(before[won] == _EMPTY))
            lost = ~won
            hashes, locations = hashes[lost], locations[lost]
            slots = self._next(slots[lost])

    def _rebuild(self, more: int) -> None:
        """Builds the table anew, without removed slots, with room for these and some more."""
        kept = self._slots[self._slots[:, 1] >= 0]
        self._bits = max(_LEAST_BITS, (5 * (self._count + more) // 2).bit_length())
        self._slots = _empty_slots(self._bits)
        self._taken = 0
        self._place(kept[:, 0], kept[:, 1])

    def _homes(self, hashes: Int64s) -> Int64s:
        spread = np.ascontiguousarray(hashes).view(np.uint64) * _SPREAD
        return (spread >> np.uint64(64 - self._bits)).view(np.int64)

    def _next(self, slots: Int64s) -> Int64s:
        return (slots + 1) & (len(self._slots) - 1)


def _empty_slots(bits: int) -> Int64s:
    slots = np.zeros((1 << bits, 2), np.int64)
    slots[:, 1] = _EMPTY
    return slots
