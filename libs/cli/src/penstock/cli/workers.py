"""Workers as tasks of this process, all on one engine."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from prometheus_client import CollectorRegistry

from penstock.cli.engines import SharedEngine
from penstock.common.checkpoint.settings import StorageSettings
from penstock.common.config import Config
from penstock.common.errors import InternalError
from penstock.common.ids import WorkerId
from penstock.common.rpc import RpcSettings
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.service import serve
from penstock.worker.settings import WorkerSettings


class HostedWorker:
    """A worker in this process."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    async def wait(self) -> None:
        """Return once it has ended; raises what ended it against its will."""
        with suppress(asyncio.CancelledError):
            await asyncio.shield(self._task)

    async def stop(self, *, force: bool) -> None:
        """End it, and return once it has ended; there is no harder way to end a task."""
        self._task.cancel()
        await asyncio.wait((self._task,))


class WorkerHost:
    """Starts workers."""

    def __init__(self, config: Config, engine: SharedEngine) -> None:
        self._rpc = config.section("rpc", RpcSettings)
        self._settings = config.section("worker", WorkerSettings)
        self._storage_options = config.section("storage", StorageSettings).options
        self._engine = engine
        self._collector = SubtaskCollector(CollectorRegistry())

    async def start(self, worker: WorkerId, controller: str) -> HostedWorker:
        """Start a worker, and return once the controller knows it."""
        settings = self._settings.model_copy(
            update={"id": worker, "controller": controller, "host": "127.0.0.1", "advertise": "", "rpc_port": 0}
        )
        ready: asyncio.Future[WorkerId] = asyncio.get_running_loop().create_future()
        serving = serve(
            settings,
            rpc=self._rpc,
            engine=await self._engine.get(),
            collector=self._collector,
            storage_options=self._storage_options,
            ready=ready.set_result,
        )
        task = asyncio.create_task(serving, name=f"worker-{worker}")
        try:
            await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not ready.done():
            task.result()
            raise InternalError(f"the worker {worker} ended before it was ready")
        return HostedWorker(task)
