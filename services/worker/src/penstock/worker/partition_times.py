"""How far each partition of one source's subtask is in event time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.worker.alignment import Alignment
from penstock.worker.signals import START_OF_TIME, Watermark
from penstock.worker.watermarks import Watermarks


class PartitionTimes:
    """The watermarks of the partitions, as far as their rows have been worked on."""

    def __init__(self, partitions: int, alignment: Alignment, subtask: int, name: Callable[[int], str] = str) -> None:
        self._watermarks = Watermarks(range(partitions))
        self._count = partitions
        self._alignment = alignment
        self._subtask = subtask
        self._name = name
        self._listener: Callable[[], None] = lambda: None

    @property
    def limit(self) -> int | None:
        """Partitions beyond this event time wait for other subtasks."""
        return self._alignment.limit

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls somebody whenever a partition or another subtask has moved."""
        self._listener = listener
        self._alignment.listen(listener)

    def grow(self, partitions: int) -> None:
        """There are so many partitions now; new ones hold the watermark back."""
        for partition in range(self._count, partitions):
            self._watermarks.add(partition)
        self._count = max(self._count, partitions)

    def of(self, partition: int) -> int:
        return self._watermarks.of(partition)

    def before(self, partition: int) -> int | None:
        """The watermark before the next row of a partition.

        That is its own, unless it was idle or not there while others went on: what they have passed is closed, so that
        older rows are late."""
        at = max(self.of(partition), self._watermarks.at, self._alignment.watermark)
        return None if at == START_OF_TIME else at

    def resume(self, partition: int) -> None:
        """Rows of a partition are there: from now on it counts."""
        if self._watermarks.is_idle(partition):
            self._watermarks.advance(partition, START_OF_TIME)

    def observed(self, partition: int, watermark: int | None) -> None:
        """The rows of a partition have been worked on, up to this watermark."""
        if watermark is not None:
            self._watermarks.advance(partition, watermark)
            self._listener()

    def idle(self, partition: int) -> None:
        self._watermarks.idle(partition)
        self._listener()

    def end(self, partition: int) -> None:
        self._watermarks.end(partition)
        self._listener()

    def leave(self) -> None:
        """The subtask has ended."""
        self._alignment.leave(self._subtask)

    def named(self) -> Mapping[str, int]:
        """The watermarks that partitions have, by their names."""
        return {self._name(one): at for one in range(self._count) if (at := self.of(one)) != START_OF_TIME}

    def restore(self, watermarks: Mapping[str, int]) -> None:
        """Partitions are as far as these, by their names."""
        for partition in range(self._count):
            if (at := watermarks.get(self._name(partition))) is not None:
                self._watermarks.advance(partition, at)

    def turn(self) -> Watermark | None:
        """The subtask's watermark, if it has changed."""
        watermark = self._watermarks.turn()
        if watermark is not None:
            self._alignment.tell(self._subtask, watermark)
        return watermark
