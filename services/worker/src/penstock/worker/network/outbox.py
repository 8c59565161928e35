"""What waits to be written to a connection: bounded, since rows have credit and the rest replaces itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.worker.channels import Item, supersedes
from penstock.worker.network.frames import Route
from penstock.worker.signals import Watermark


@dataclass(slots=True)
class Waiting:
    """An item of a channel, or watermarks that nothing has followed yet: one, and perhaps that it is idle since."""

    route: Route
    items: list[Item]


class Outbox:
    """Items in the order in which they were put in, and what is to be told of channels that come from the other side,
    of which only the last counts."""

    def __init__(self) -> None:
        self._items: deque[Waiting] = deque()
        self._last: dict[Route, Waiting] = {}
        self._grants: dict[Route, tuple[int, int]] = {}
        self._blocked: set[Route] = set()

    def __len__(self) -> int:
        return len(self._items) + len(self._grants) + len(self._blocked)

    def put(self, route: Route, item: Item) -> None:
        """Adds an item; a watermark takes the place of one that nothing has followed."""
        last = self._last.get(route)
        if last is None or not isinstance(item, Watermark) or not isinstance(last.items[-1], Watermark):
            last = self._last[route] = Waiting(route, [])
            self._items.append(last)
        while last.items and supersedes(item, last.items[-1]):
            last.items.pop()
        last.items.append(item)

    def grant(self, route: Route, taken: int, bound: int) -> None:
        self._grants[route] = (taken, bound)

    def block(self, route: Route) -> None:
        """Tells the receiver that the sender of a channel waits."""
        self._blocked.add(route)

    def take_grants(self) -> dict[Route, tuple[int, int]]:
        grants, self._grants = self._grants, {}
        return grants

    def take_blocked(self) -> set[Route]:
        blocked, self._blocked = self._blocked, set()
        return blocked

    def take(self) -> Waiting | None:
        """The next item, or watermarks."""
        if not self._items:
            return None
        waiting = self._items.popleft()
        if self._last.get(waiting.route) is waiting:
            del self._last[waiting.route]
        return waiting
