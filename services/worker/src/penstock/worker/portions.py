"""How many rows a sink is given at once: as many as it takes in a moment, so that a slow one is never long away."""

from __future__ import annotations

from typing import Final

_MOMENT_SECONDS: Final = 0.1
_FIRST_ROWS: Final = 1024


class Portion:
    """Grows while writes are quick, and shrinks to what takes a moment when they are not."""

    def __init__(self, most_rows: int) -> None:
        self._most = most_rows
        self.rows = min(_FIRST_ROWS, most_rows)

    def learn(self, rows: int, seconds: float) -> None:
        """A write of so many rows took so long."""
        if seconds > 2 * _MOMENT_SECONDS:
            self.rows = max(1, min(self.rows, int(rows * _MOMENT_SECONDS / seconds)))
        elif seconds < _MOMENT_SECONDS / 2 and rows >= self.rows:
            self.rows = min(2 * self.rows, self._most)
