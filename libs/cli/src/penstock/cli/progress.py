"""How a running query is shown: live on a terminal, a line every few seconds elsewhere; its rows on stdout."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, Protocol, Self

from penstock.common.jobs import JobState

if TYPE_CHECKING:
    from rich.live import Live

    from penstock.api.schemas import JobMetrics

_LINE_SECONDS: Final = 5.0
_LIVE_SECONDS: Final = 3600.0  # a stream that is further behind is one of the past
_RATE_SECONDS: Final = 0.2  # the least time that a rate is taken over


@dataclass(frozen=True, slots=True)
class Totals:
    """What has gone through a job so far."""

    rows_in: int = 0
    rows_out: int = 0
    bad_rows: int = 0
    backpressure: float = 0.0
    late_rows: int = 0
    state_rows: int = 0
    watermark: datetime | None = None
    """The least of all nodes that have one."""
    watermark_lag_seconds: float | None = None

    @classmethod
    def of(cls, metrics: JobMetrics) -> Totals:
        nodes = metrics.nodes
        lags = [node.watermark_lag_seconds for node in nodes if node.watermark_lag_seconds is not None]
        return cls(
            sum(node.rows_in for node in nodes if node.is_source),
            sum(node.rows_out for node in nodes if node.is_sink),
            sum(node.bad_rows for node in nodes),
            max((node.backpressure for node in nodes), default=0.0),
            sum(node.late_rows for node in nodes),
            sum(node.state_rows for node in nodes),
            min((node.watermark for node in nodes if node.watermark is not None), default=None),
            max(lags, default=None),
        )


class Meter:
    """Totals over time, and the rates between them."""

    def __init__(self, started_at: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = self._measured_at = started_at
        self.totals = Totals()
        self.rate_in = self.rate_out = 0.0
        self.first_row_seconds: float | None = None

    @property
    def elapsed_seconds(self) -> float:
        return self._clock() - self._started_at

    def measure(self, totals: Totals, *, last: bool = False) -> None:
        now = self._clock()
        passed = now - self._measured_at
        if passed < _RATE_SECONDS and not last:
            return
        passed = max(passed, _RATE_SECONDS)
        # A job that was restarted counts from 0 again.
        self.rate_in = max(0.0, (totals.rows_in - self.totals.rows_in) / passed)
        self.rate_out = max(0.0, (totals.rows_out - self.totals.rows_out) / passed)
        self.totals, self._measured_at = totals, now

    def note_row(self) -> None:
        """A row was shown."""
        if self.first_row_seconds is None:
            self.first_row_seconds = self.elapsed_seconds

    def line(self, state: str) -> str:
        totals = self.totals
        parts = [
            f"{totals.rows_in:,} rows in ({self.rate_in:,.0f}/s)",
            f"{totals.rows_out:,} out ({self.rate_out:,.0f}/s)",
        ]
        if totals.bad_rows:
            parts.append(f"{totals.bad_rows:,} bad")
        if totals.late_rows:
            parts.append(f"{totals.late_rows:,} late")
        if totals.state_rows:
            parts.append(f"{totals.state_rows:,} in state")
        if (watermark := _watermark(totals)) is not None:
            parts.append(watermark)
        if totals.backpressure >= 0.05:
            parts.append(f"backpressure {totals.backpressure:.0%}")
        return f"{state} {self.elapsed_seconds:.0f} s: {', '.join(parts)}"

    def summary(self, state: JobState) -> str:
        totals = self.totals
        parts = [f"{totals.rows_in:,} rows in", f"{totals.rows_out:,} out"]
        if totals.bad_rows:
            parts.append(f"{totals.bad_rows:,} bad")
        if totals.late_rows:
            parts.append(f"{totals.late_rows:,} late {'row was' if totals.late_rows == 1 else 'rows were'} dropped")
        if self.first_row_seconds is not None:
            parts.append(f"first row after {self.first_row_seconds:.1f} s")
        return f"{state} after {self.elapsed_seconds:.1f} s: {', '.join(parts)}"


class Display(Protocol):
    """Where rows and progress go."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, text: str) -> None:
        """What is going on now."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    async def rows(self, lines: bytes) -> None:
        """Rows, as lines of JSON; raises BrokenPipeError when nobody reads them any more."""


def open_display() -> Display:
    """The display for the terminal, or for what is there in its stead."""
    return LiveDisplay() if sys.stderr.isatty() else PlainDisplay()


class PlainDisplay:
    """Plain lines on stderr, a progress line every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, text: str) -> None:
        if self._clock() - self._said_at >= _LINE_SECONDS:
            self.note(text)
            self._said_at = self._clock()

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def rows(self, lines: bytes) -> None:
        # In a thread: whoever reads may be slow, and the cluster lives in this loop.
        await asyncio.to_thread(_write_all, sys.stdout.fileno(), lines)


class LiveDisplay:
    """A line that changes in place, below the rows where both are on one terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._shares_terminal = sys.stdout.isatty()
        stream: IO[str] = sys.stdout if self._shares_terminal else sys.stderr
        self._console = Console(file=stream, markup=False, highlight=False, soft_wrap=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live("", console=self._console, transient=True, refresh_per_second=4, redirect_stdout=False)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, text: str) -> None:
        from rich.spinner import Spinner

        if self._live is None:
            return
        if isinstance(self._live.renderable, Spinner):
            self._live.renderable.update(text=text)
        else:
            self._live.update(Spinner("dots", text=text))

    def note(self, text: str) -> None:
        self._console.print(text)

    async def rows(self, lines: bytes) -> None:
        if self._shares_terminal:
            await asyncio.to_thread(self._console.out, lines.decode(errors="replace"), end="", highlight=False)
        else:
            await asyncio.to_thread(_write_all, sys.stdout.fileno(), lines)


def _watermark(totals: Totals) -> str | None:
    """How far behind a live stream is, or where a stream of the past is."""
    lag = totals.watermark_lag_seconds
    if lag is None or totals.watermark is None:
        return None
    if lag < _LIVE_SECONDS:
        return f"watermark {lag:.1f} s behind"
    return f"watermark {totals.watermark:%Y-%m-%d %H:%M:%S}"


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
