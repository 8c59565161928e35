"""How a worker's connections are made."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.worker.network.codec import Compression


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The same for all connections of a worker."""

    max_frame_bytes: int = 64 << 20
    compression: Compression = "none"
    connect_seconds: float = 30.0
    """How long another worker of the job may take to be there."""
    silence_seconds: float = 20.0
    """How long it may answer nothing, 4 s or more."""
