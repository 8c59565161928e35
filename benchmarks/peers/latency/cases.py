"""What is asked of every engine: nine of ten rows as they are, or counts by key in tumbling windows, at a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from latencies import Arrivals, Float64s, row_latencies_ms, window_latencies_ms


@dataclass(frozen=True, slots=True)
class Case:
    """A query at a rate."""

    rate: int
    width_ms: int | None = None
    """Of windows; none: rows are filtered, by `number % 10 <> 3`."""
    keys: int = 1

    @property
    def query(self) -> str:
        return "filter" if self.width_ms is None else f"tumble {self.width_ms} ms"

    @property
    def name(self) -> str:
        query = "filter" if self.width_ms is None else f"tumble{self.width_ms}"
        return f"{query}@{self.rate}"

    def job(self, seconds: int) -> Mapping[str, object]:
        """What a session is told of it."""
        return {"rate": self.rate, "count": self.rate * seconds, "width_ms": self.width_ms, "keys": self.keys}

    def latencies_ms(self, arrivals: Arrivals, seconds: int, lead_us: int) -> Float64s:
        """Those that count, of a run of so many seconds; WrongAnswers if it is another question that was answered."""
        if self.width_ms is None:
            return row_latencies_ms(arrivals, self.rate * seconds * 9 // 10, lead_us)
        return window_latencies_ms(arrivals, self.width_ms * 1000, self.rate * self.width_ms // 1000, lead_us)


CASES: Final[Sequence[Case]] = tuple(
    Case(rate, width_ms, keys) for width_ms, keys in ((None, 1), (1000, 1000), (100, 100)) for rate in (1000, 10_000)
)
