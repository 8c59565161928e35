"""What a chain asks of an operator that keeps rows: to take rows in, and to let out what a watermark completes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from penstock.spark import FragmentSpec
from penstock.worker.batches import Batches
from penstock.worker.fragments import PlannedFragment
from penstock.worker.signals import END_OF_TIME
from penstock.worker.state.tables import StateTable

__all__ = ["END_OF_TIME", "ChainOperator", "Planner"]


class Planner(Protocol):
    """What an operator needs of the engine."""

    async def plan(self, spec: FragmentSpec) -> PlannedFragment:
        """Plans a fragment."""
        ...


class ChainOperator(Protocol):
    """One operator of a chain. One call at a time."""

    async def process(self, batches: Batches) -> Batches:
        """Takes rows in; returns those that leave now."""
        ...

    async def advance(self, watermark: int) -> Batches:
        """The rows that a watermark (microseconds since 1970), which never goes back, lets out; `END_OF_TIME`: all."""
        ...

    async def flush(self) -> Batches:
        """The changes that were held back so that a key has one at a time; none of an operator that holds none back."""
        ...

    @property
    def holds_changes(self) -> bool:
        """Whether `flush` would give something."""
        ...

    @property
    def late_rows(self) -> int:
        """How many rows it has dropped because what they are of has left already."""
        ...

    @property
    def state_rows(self) -> int:
        """How many rows it keeps."""
        ...

    @property
    def state_bytes(self) -> int:
        """How large they are."""
        ...

    @property
    def tables(self) -> Mapping[str, StateTable]:
        """What checkpoints have of it, by name."""
        ...

    async def restore(self, name: str, rows: pa.Table) -> None:
        """Takes in the rows of a table. The operator is as new, but has been told the watermark."""
        ...

    async def close(self) -> None:
        """Gives back what the operator holds."""
        ...
