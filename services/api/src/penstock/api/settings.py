"""The `[api]` section of the settings; `defaults.toml` says what each key means."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.common.config import Duration, Settings, Size

MAX_PARALLELISM = 1024


class ApiSettings(Settings):
    """What the api is started with."""

    host: str
    port: Annotated[int, Field(ge=0, le=65535)]
    admin_port: Annotated[int, Field(ge=0, le=65535)]
    token: str
    compiler: str
    controller: str
    compile_timeout: Duration
    default_parallelism: Annotated[int, Field(ge=1, le=MAX_PARALLELISM)]
    default_checkpoint_interval: Duration
    max_body: Size
    keep_alive: Duration
    preview_lifetime: Duration
    preview_retention: Duration
