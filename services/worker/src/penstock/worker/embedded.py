"""Workers inside another process, which share its engine."""

from __future__ import annotations

import asyncio

from penstock.common.ids import WorkerId
from penstock.common.rpc import RpcSettings
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.service import serve
from penstock.worker.settings import WorkerSettings
from penstock.worker.subtask import FragmentEngine


class EmbeddedWorker:
    """A worker that runs as a task."""

    def __init__(self, serving: asyncio.Task[None]) -> None:
        self._serving = serving

    @classmethod
    async def start(
        cls,
        worker: WorkerId,
        controller: str,
        *,
        settings: WorkerSettings,
        rpc: RpcSettings,
        engine: FragmentEngine,
        collector: SubtaskCollector,
    ) -> EmbeddedWorker:
        """Starts one; it registers with the controller at an address when it is ready. The engine stays open."""
        own = settings.model_copy(update={"id": worker, "controller": controller, "rpc_port": 0})
        serving = serve(own, rpc=rpc, engine=engine, collector=collector)
        return cls(asyncio.create_task(serving, name=f"worker-{worker}"))

    async def wait(self) -> None:
        """Returns once it has ended; raises what ended it against its will."""
        await asyncio.wait((self._serving,))
        if not self._serving.cancelled():
            self._serving.result()

    async def stop(self, *, force: bool) -> None:
        """Ends it, and returns once it has ended. A task ends in one way, whether forced or not."""
        self._serving.cancel()
        await asyncio.wait((self._serving,))
