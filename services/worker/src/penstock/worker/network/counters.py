"""What a worker counts of its connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class NetworkCounters:
    """Of all connections of an execution; they only grow."""

    bytes_in: int = 0
    bytes_out: int = 0
    frames_in: int = 0
    frames_out: int = 0
    blocked_seconds: float = 0.0
    """How long subtasks waited for credit, one after the other or together."""
