"""The services of the embedded cluster, wired to each other in this process."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

import penstock.api.service as api
import penstock.compiler.service as compiler
import penstock.controller.service as controller
from penstock.api.settings import ApiSettings
from penstock.cli.engines import SharedEngine
from penstock.cli.hosting import Hosted
from penstock.cli.workers import WorkerHost
from penstock.common import service
from penstock.common.bus import Bus
from penstock.common.database import Pool
from penstock.compiler.settings import CompilerSettings
from penstock.controller.settings import ControllerSettings

if TYPE_CHECKING:
    from penstock.cli.cluster import ClusterPlan

_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the services are."""

    api: str
    controller: str


async def start_services(plan: ClusterPlan, engine: SharedEngine, hosted: Hosted, pool: Pool, bus: Bus) -> Addresses:
    """Start every service, those that can at the same time; `hosted` ends them."""
    starting = _Starting(plan, engine, hosted)
    controller_port, compiler_port = await asyncio.gather(starting.controller(pool, bus), starting.compiler())
    controller_address = f"{_LOOPBACK}:{controller_port}"
    if plan.workers == "node":
        await starting.node(controller_address)
    url = await starting.api(pool, bus, controller=controller_address, compiler=f"{_LOOPBACK}:{compiler_port}")
    return Addresses(url, controller_address)


class _Starting:
    def __init__(self, plan: ClusterPlan, engine: SharedEngine, hosted: Hosted) -> None:
        self._plan = plan
        self._engine = engine
        self._hosted = hosted

    async def controller(self, pool: Pool, bus: Bus) -> int:
        plan = self._plan
        settings = plan.config.section("controller", ControllerSettings).model_copy(
            update={"host": _LOOPBACK, "scheduler": plan.workers, **self._ports("rpc_port", "admin_port")}
        )
        workers = WorkerHost(plan.config, self._engine) if plan.workers == "embedded" else None

        def serve(ready: Callable[[controller.Serving], None]) -> Coroutine[Any, Any, None]:
            process = self._process("controller")
            start_worker = None if workers is None else workers.start
            return controller.serve(
                process,
                settings,
                pool=pool,
                bus=bus,
                start_worker=start_worker,
                ready=ready,
                checkpoint_folder=self._checkpoints,
            )

        serving = await self._hosted.start("controller", serve)
        plan.note("the controller is up")
        return serving.rpc_port

    async def compiler(self) -> int:
        plan = self._plan
        settings = plan.config.section("compiler", CompilerSettings).model_copy(
            update={"host": _LOOPBACK, **self._ports("rpc_port", "admin_port")}
        )
        engine = await self._engine.get()
        plan.note("Spark is up")

        def serve(ready: Callable[[compiler.Serving], None]) -> Coroutine[Any, Any, None]:
            return compiler.serve(
                self._process("compiler"), settings, engine=engine, checkpoint_folder=self._checkpoints, ready=ready
            )

        serving = await self._hosted.start("compiler", serve)
        return serving.rpc_port

    async def api(self, pool: Pool, bus: Bus, *, controller: str, compiler: str) -> str:
        settings = self._plan.config.section("api", ApiSettings).model_copy(
            update={"controller": controller, "compiler": compiler, **self._ports("port", "admin_port")}
        )

        def serve(ready: Callable[[str], None]) -> Coroutine[Any, Any, None]:
            return api.serve(
                self._process("api"), settings, pool=pool, bus=bus, checkpoint_folder=self._checkpoints, ready=ready
            )

        return await self._hosted.start("api", serve)

    async def node(self, controller: str) -> None:
        # Here, since a cluster without a node does not need it.
        import penstock.node.service as node
        from penstock.node.settings import NodeSettings

        settings = self._plan.config.section("node", NodeSettings)
        settings = settings.model_copy(
            update={
                "worker_command": settings.worker_command or self._worker_command(),
                "host": _LOOPBACK,
                "controller": controller,
                "state_dir": str(self._plan.state_dir / "node"),
                **self._ports("rpc_port", "admin_port"),
            }
        )

        def serve(ready: Callable[[node.Serving], None]) -> Coroutine[Any, Any, None]:
            return node.serve(self._process("node"), settings, ready=ready)

        await self._hosted.start("node", serve)
        self._plan.note("the node is up")

    def _worker_command(self) -> str:
        """Workers read the same settings as this process."""
        file = self._plan.config_file
        options = () if file is None else ("--config", str(file.absolute()))
        return shlex.join((sys.executable, "-m", "penstock.worker", *options))

    @property
    def _checkpoints(self) -> Path:
        return self._plan.state_dir / "checkpoints"

    def _process(self, name: str) -> service.Context:
        return service.Context(name, self._plan.config, self._plan.tracing, CollectorRegistry())

    def _ports(self, *names: str) -> dict[str, int]:
        return dict.fromkeys(names, 0) if self._plan.free_ports else {}
