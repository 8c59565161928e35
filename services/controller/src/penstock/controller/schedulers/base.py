"""What the controller asks of whatever starts its workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.common.ids import WorkerId
from penstock.controller.placement import Shortage
from penstock.controller.records import TaskOwner


@dataclass(frozen=True, slots=True)
class WorkerGrant:
    """A worker that is being started for a job, and the slices that it is to run."""

    worker_id: WorkerId
    slices: tuple[int, ...]


class Scheduler(Protocol):
    async def start_workers(
        self, owner: TaskOwner, slices: int, on_shortage: Callable[[Shortage], None]
    ) -> tuple[WorkerGrant, ...]:
        """Start workers for all slices; waits while there are no slots, and tells why each time that the reason is
        another. Workers register with the controller when they are ready. When it raises or is cancelled,
        `stop_workers` ends what has been started."""

    async def stop_workers(self, owner: TaskOwner, *, force: bool) -> None:
        """End whatever was started for a generation of a job, and return once it is known to end; `force` kills."""

    async def close(self) -> None:
        """End what only the controller keeps alive."""
