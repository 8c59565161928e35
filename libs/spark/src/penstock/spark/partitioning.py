"""How rows are spread over partitions: the unsigned 32-bit hash space, cut into equal contiguous ranges.

`Planner.scala` computes the same for each row of a fragment with partitions.
"""

from __future__ import annotations

from typing import Final

HASH_SPACE: Final = 1 << 32


def partition_of(row_hash: int, partitions: int) -> int:
    """The partition of a row whose Spark `hash` (a signed 32-bit number) is `row_hash`."""
    return (row_hash % HASH_SPACE) * partitions // HASH_SPACE


def hash_range(partition: int, partitions: int) -> range:
    """The unsigned hashes that belong to a partition."""
    start, stop = (-(-HASH_SPACE * edge // partitions) for edge in (partition, partition + 1))
    return range(start, stop)
