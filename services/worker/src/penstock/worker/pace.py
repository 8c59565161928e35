"""How a subtask cuts its work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is done at once, and how long what is ready may wait."""

    batch_rows: int
    channel_rows: int
    linger_seconds: float
    flush_seconds: float
    updating_flush_seconds: float = 1.0
    watermark_drift_us: int | None = None
    """How far subtasks of a source may be ahead of the slowest in event time; None: any distance."""
