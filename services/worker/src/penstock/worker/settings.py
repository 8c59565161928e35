"""The `[worker]` section of the settings; `defaults.toml` says what each key means."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field

from penstock.common.config import Duration, Settings, Size
from penstock.worker.network.codec import Compression
from penstock.worker.network.settings import NetworkSettings
from penstock.worker.pace import Pace
from penstock.worker.state.budget import Budget


class WorkerSettings(Settings):
    """What a worker is started with."""

    id: str
    node_id: str
    controller: str
    host: str
    advertise: str
    rpc_port: Annotated[int, Field(ge=0, le=65535)]
    data_port: Annotated[int, Field(ge=0, le=65535)]
    data_compression: Compression
    data_max_frame: Annotated[Size, Field(ge=1 << 16, le=1 << 31)]
    data_connect_timeout: Duration
    data_silence_timeout: Annotated[Duration, Field(ge=timedelta(seconds=4))]
    admin_port: Annotated[int, Field(ge=0, le=65535)]
    heartbeat_interval: Duration
    exit_with_parent: bool
    batch_rows: Annotated[int, Field(gt=0)]
    channel_rows: Annotated[int, Field(gt=0)]
    linger: Duration
    flush_interval: Duration
    updating_flush_interval: Duration
    updating_ttl: Duration
    watermark_drift: Duration
    state_budget: Size
    spill_dir: str

    @property
    def pace(self) -> Pace:
        return Pace(
            self.batch_rows,
            self.channel_rows,
            self.linger.total_seconds(),
            self.flush_interval.total_seconds(),
            self.updating_flush_interval.total_seconds(),
            self.watermark_drift // timedelta(microseconds=1) or None,
        )

    @property
    def network(self) -> NetworkSettings:
        return NetworkSettings(
            self.data_max_frame,
            self.data_compression,
            self.data_connect_timeout.total_seconds(),
            self.data_silence_timeout.total_seconds(),
        )

    @property
    def budget(self) -> Budget:
        return Budget(self.state_budget, Path(self.spill_dir) if self.spill_dir else None)

    @property
    def updating_ttl_ms(self) -> int:
        return self.updating_ttl // timedelta(milliseconds=1)
