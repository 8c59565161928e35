"""How subtasks share numbered events: by turns, so that all of them advance together whatever their number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Share:
    """The events of one subtask: block after block of `block` events, of which each goes to the next subtask."""

    subtask: int
    parallelism: int
    block: int = 1

    def number(self, index: int) -> int:
        """The number of the subtask's event of that index."""
        turn, offset = divmod(index, self.block)
        return (turn * self.parallelism + self.subtask) * self.block + offset

    def numbers(self, first: int, count: int) -> Numbers:
        """The numbers of `count` of the subtask's events, from the index `first` on."""
        indexes = np.arange(first, first + count, dtype=np.int64)
        if self.parallelism == 1:
            return indexes
        turns = indexes // self.block
        return indexes + (turns * (self.parallelism - 1) + self.subtask) * self.block

    def count_below(self, number: int) -> int:
        """How many of the subtask's events have a lower number."""
        turns, rest = divmod(number, self.parallelism * self.block)
        return turns * self.block + min(max(rest - self.subtask * self.block, 0), self.block)
