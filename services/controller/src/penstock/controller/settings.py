"""The controller's settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from penstock.common.config import Duration, Settings, Size
from penstock.controller.placement import Policy
from penstock.controller.states.failures import RestartPolicy


class ControllerSettings(Settings):
    host: str
    rpc_port: Annotated[int, Field(ge=0, le=65535)]
    admin_port: Annotated[int, Field(ge=0, le=65535)]
    advertise: str
    lease: Duration
    renew_interval: Duration
    scheduler: Literal["node", "process", "embedded"]
    placement: Policy
    share_after: Duration
    worker_slots: Annotated[int, Field(ge=0)]
    worker_command: str
    poll_interval: Duration
    tick: Duration
    heartbeat_timeout: Duration
    node_timeout: Duration
    start_timeout: Duration
    stop_timeout: Duration
    adopt_timeout: Duration
    max_restarts: Annotated[int, Field(ge=0)]
    restart_backoff: Duration
    restart_backoff_max: Duration
    healthy_after: Duration
    output_rows: Annotated[int, Field(ge=1)]
    output_bytes: Size
    kept_outputs: Annotated[int, Field(ge=0)]
    kept_metrics: Annotated[int, Field(ge=0)]

    @property
    def restart_policy(self) -> RestartPolicy:
        return RestartPolicy(self.max_restarts, self.restart_backoff, self.restart_backoff_max)
