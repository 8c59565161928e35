"""How many rows of a channel may be on their way: what its sender and its receiver each know of it."""

from __future__ import annotations

from penstock.worker.network.frames import BadFrame


class Credit:
    """The sender's side. So many rows as the receiver bounds may be with it or on their way, or a single batch that is
    larger; none before it has said so."""

    def __init__(self) -> None:
        self._bound = 0
        self._sent = 0
        self._taken = 0

    @property
    def outstanding(self) -> int:
        """Rows that were sent, and not taken as far as is known."""
        return self._sent - self._taken

    def spend(self, rows: int) -> bool:
        """Whether so many rows may be sent; they then count as sent."""
        if not self._bound or (self.outstanding and self.outstanding + rows > self._bound):
            return False
        self._sent += rows
        return True

    def grant(self, taken: int, bound: int) -> None:
        """The receiver has taken so many rows in all; raises BadFrame."""
        if not bound or not self._taken <= taken <= self._sent:
            raise BadFrame(f"{taken} rows were taken of {self._sent} that were sent, after {self._taken} before")
        self._taken, self._bound = taken, bound


class Allowance:
    """The receiver's side: what it has told the sender, and so what may come."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._received = 0
        self._taken = 0
        self._told = 0
        self._awaited = False

    def receive(self, rows: int) -> None:
        """So many rows have come; raises BadFrame when they were not granted."""
        outstanding = self._received - self._told
        if outstanding and outstanding + rows > self.bound:
            raise BadFrame(f"{rows} rows came after {outstanding} where {self.bound} are granted")
        self._received += rows

    def await_grant(self) -> None:
        """The sender waits: the next rows that are taken are told at once."""
        self._awaited = True

    def take(self, rows: int) -> int | None:
        """So many rows were taken. Returns how many in all when that is worth telling: to a sender that waits, when a
        quarter of the bound is free, or when nothing is left."""
        self._taken += rows
        untold = self._taken - self._told
        if not (self._awaited or 4 * untold >= self.bound or self._taken == self._received):
            return None
        self._told, self._awaited = self._taken, False
        return self._taken
