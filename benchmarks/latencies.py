"""What arrivals at a sink say of latency, whatever engine they are of, and whether they are those that were asked for.

Of a row, latency is the time from when its event was due to when it came to the sink. Of a window, it is the time from
when the event was due that let the watermark, one second behind, pass the window's end (that end and a second), to when
the last of its rows came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

WATERMARK_US: Final = 1_000_000
QUANTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99, "p99.9_ms": 0.999}

Int64s: TypeAlias = npt.NDArray[np.int64]
Float64s: TypeAlias = npt.NDArray[np.float64]


class WrongAnswers(Exception):
    """An engine's rows are not those that were asked for; the message says which."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The rows that came to a sink, a place of each array for a row."""

    due_us: Int64s
    """When its event was due; of a window's row, the window's end."""
    at_us: Int64s
    """When it came."""
    events: Int64s
    """How many events it stands for."""

    def write(self, path: Path) -> None:
        np.column_stack((self.due_us, self.at_us, self.events)).astype(np.int64).tofile(path)

    @staticmethod
    def read(path: Path) -> Arrivals:
        """From a file of three numbers a row, as every session of an engine writes it."""
        return Arrivals(*np.fromfile(path, np.int64).reshape(-1, 3).T)


def row_latencies_ms(arrivals: Arrivals, events: int, lead_us: int) -> Float64s:
    """Of each row but the first ones; WrongAnswers if they do not stand for so many events."""
    if (found := int(arrivals.events.sum())) != events:
        raise WrongAnswers(f"{found:,} rows came instead of {events:,}")
    counted = arrivals.due_us >= arrivals.due_us.min() + lead_us
    latencies: Float64s = (arrivals.at_us - arrivals.due_us)[counted] / 1000
    return latencies


def window_latencies_ms(arrivals: Arrivals, width_us: int, events: int, lead_us: int) -> Float64s:
    """Of each window but the first ones and those that may be there only because the stream has ended.

    WrongAnswers if one of them does not stand for so many events, or if one is missing between others.
    """
    ends, window = np.unique(arrivals.due_us, return_inverse=True)
    last_us = np.zeros(len(ends), np.int64)
    np.maximum.at(last_us, window, arrivals.at_us)
    totals = np.bincount(window, arrivals.events, len(ends))
    low, high = (int(ends[0]) + lead_us, int(ends[-1]) - WATERMARK_US - width_us) if len(ends) else (0, 0)
    counted = (ends > low) & (ends <= high)
    if not counted.any():
        raise WrongAnswers(f"only {len(ends):,} windows came")
    if wrong := int(np.sum(totals[counted] != events)):
        raise WrongAnswers(f"{wrong:,} windows of {np.sum(counted):,} do not have {events:,} events")
    if np.any(np.diff(ends[counted]) != width_us):
        raise WrongAnswers("windows are missing")
    latencies: Float64s = (last_us - ends - WATERMARK_US)[counted] / 1000
    return latencies


def quantiles(latencies_ms: Float64s) -> Mapping[str, float]:
    """Those of `QUANTILES`, each a latency that was measured."""
    return {name: float(np.quantile(latencies_ms, share, method="higher")) for name, share in QUANTILES.items()}
