"""A node's settings."""

from __future__ import annotations

import os
import socket
from typing import Annotated

from pydantic import Field

from penstock.common.config import Duration, Settings

_ALL_INTERFACES = frozenset({"0.0.0.0", "::", "[::]"})


class NodeSettings(Settings):
    host: str
    rpc_port: Annotated[int, Field(ge=0, le=65535)]
    admin_port: Annotated[int, Field(ge=0, le=65535)]
    advertise: str
    controller: str
    state_dir: str
    slots: Annotated[int, Field(ge=0)]
    standby_workers: Annotated[int, Field(ge=0)]
    worker_command: str
    heartbeat_interval: Duration
    stop_timeout: Duration
    standby_backoff: Duration
    standby_backoff_max: Duration

    @property
    def slot_count(self) -> int:
        # The cores that this process may use, which a container can limit.
        return self.slots or len(os.sched_getaffinity(0))

    @property
    def advertised_host(self) -> str:
        """The name by which others reach this machine."""
        if self.advertise:
            return self.advertise
        return socket.gethostname() if self.host in _ALL_INTERFACES else self.host
