"""The `[compiler]` section of the settings; `defaults.toml` says what each key means."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.common.config import Duration, Settings, Size
from penstock.compiler.udf_child import ChildLimits
from penstock.compiler.udfs import UdfLimits


class CompilerSettings(Settings):
    """What the compiler is started with."""

    host: str
    rpc_port: Annotated[int, Field(ge=0, le=65535)]
    admin_port: Annotated[int, Field(ge=0, le=65535)]
    compile_timeout: Duration
    concurrency: Annotated[int, Field(ge=1)]
    udf_timeout: Duration
    udf_memory: Size
    udf_install_timeout: Duration

    @property
    def udf_limits(self) -> UdfLimits:
        return UdfLimits(ChildLimits(self.udf_timeout, self.udf_memory), self.udf_install_timeout)
