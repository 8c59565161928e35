"""Whose turn it is among the partitions of a source, and which of them have fallen silent."""

from __future__ import annotations

from typing import Final

from penstock.connectors.base import NONE_HELD
from penstock.worker.partition_times import PartitionTimes

_MOMENT_SECONDS: Final = 0.1
"""Whoever gives nothing for so long has nothing now: the others need not wait for it to be read."""


class Turns:
    """The partition that is furthest behind is read first, unless it has nothing.

    Silence is time in which a partition was asked. What passes between two questions counts as a moment at most: rows
    that wait while the worker is busy do not make a partition silent."""

    def __init__(self, partitions: int, times: PartitionTimes, idle_seconds: float | None) -> None:
        self._times = times
        self._idle_seconds = idle_seconds
        self._quiet_seconds = _MOMENT_SECONDS if idle_seconds is None else min(_MOMENT_SECONDS, idle_seconds)
        self._silent_seconds = dict.fromkeys(range(partitions), 0.0)
        self._count = partitions

    def grow(self, partitions: int) -> None:
        """There are so many partitions now."""
        for partition in range(self._count, partitions):
            self._silent_seconds[partition] = 0.0
        self._count = max(self._count, partitions)
        self._times.grow(partitions)

    def end(self, partition: int) -> None:
        """A partition has no more rows."""
        self._silent_seconds.pop(partition, None)

    def held(self) -> frozenset[int]:
        """The partitions that are not to be read now."""
        limit = self._times.limit
        if len(self._silent_seconds) < 2 and limit is None:
            return NONE_HELD
        at = {partition: self._times.of(partition) for partition in self._silent_seconds}
        talking = [at[partition] for partition, silent in self._silent_seconds.items() if silent < self._quiet_seconds]
        most = min((*talking, *(() if limit is None else (limit,))), default=None)
        return NONE_HELD if most is None else frozenset(partition for partition in at if at[partition] > most)

    def holds_all(self, held: frozenset[int]) -> bool:
        """Whether there is nobody to ask."""
        return bool(held) and held >= self._silent_seconds.keys()

    def asked(
        self, held: frozenset[int], seconds: float, since_last: float, answered: int | None = None
    ) -> tuple[int, ...]:
        """All but those held were asked for so long, and perhaps one gave rows; returns who is idle from now on."""
        passed = seconds + min(since_last, _MOMENT_SECONDS)
        idle = []
        for partition in self._silent_seconds.keys() - held - {answered}:
            before = self._silent_seconds[partition]
            self._silent_seconds[partition] = before + passed
            if self._idle_seconds is not None and before < self._idle_seconds <= before + passed:
                idle.append(partition)
        if answered is not None:
            self._silent_seconds[answered] = 0.0
        return tuple(idle)

    def patience(self, held: frozenset[int]) -> float | None:
        """How long to wait for an answer: until somebody is so silent that it holds others no more, or is idle."""
        asked = [silent for partition, silent in self._silent_seconds.items() if partition not in held]
        bounds = [self._quiet_seconds] if held else []
        if self._idle_seconds is not None:
            bounds.append(self._idle_seconds)
        return min((bound - silent for bound in bounds for silent in asked if silent < bound), default=None)
