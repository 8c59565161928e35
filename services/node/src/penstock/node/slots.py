"""Which worker has which slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from penstock.common.errors import ExternalError, UserError
from penstock.common.ids import WorkerId


class NoSlots(ExternalError):
    """The node has fewer free slots than were asked for."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a node, and those that are taken."""

    total: int
    taken: Mapping[WorkerId, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def used(self) -> int:
        return sum(self.taken.values())

    @property
    def free(self) -> int:
        return self.total - self.used

    def take(self, worker: WorkerId, slots: int) -> Slots:
        """The slots after a worker took some; raises NoSlots when there are too few."""
        if slots < 1:
            raise UserError(f"a worker has at least one slot, not {slots}")
        if slots > self.free:
            raise NoSlots(f"{slots} slots were asked for and {self.free} of {self.total} are free")
        return replace(self, taken=MappingProxyType({**self.taken, worker: slots}))

    def release(self, worker: WorkerId) -> Slots:
        """The slots after a worker is gone; one that had none changes nothing."""
        return replace(self, taken=MappingProxyType({w: n for w, n in self.taken.items() if w != worker}))
