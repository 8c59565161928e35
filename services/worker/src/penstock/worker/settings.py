"""The `[worker]` section of the settings; `defaults.toml` says what each key means."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.common.config import Duration, Settings
from penstock.worker.stages import Pace


class WorkerSettings(Settings):
    """What a worker is started with."""

    id: str
    node_id: str
    controller: str
    host: str
    advertise: str
    rpc_port: Annotated[int, Field(ge=0, le=65535)]
    admin_port: Annotated[int, Field(ge=0, le=65535)]
    heartbeat_interval: Duration
    exit_with_parent: bool
    batch_rows: Annotated[int, Field(gt=0)]
    channel_rows: Annotated[int, Field(gt=0)]
    linger: Duration
    flush_interval: Duration

    @property
    def pace(self) -> Pace:
        return Pace(
            self.batch_rows, self.channel_rows, self.linger.total_seconds(), self.flush_interval.total_seconds()
        )
