"""How a worker makes itself known to the controller, and stays known."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from penstock.common.errors import PenstockError, RetryHint
from penstock.common.events import LogEvent
from penstock.common.proto import controller_pb2 as proto
from penstock.common.rpc import RpcSettings, calling
from penstock.worker.rpc import metrics_to_proto
from penstock.worker.worker import Worker

if TYPE_CHECKING:
    from penstock.common.proto.controller_pb2_grpc import ControllerServiceAsyncStub

_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


class Heartbeat:
    """Registers one worker, and reports its metrics from then on."""

    def __init__(
        self,
        worker: Worker,
        controller: ControllerServiceAsyncStub,
        settings: RpcSettings,
        *,
        node_id: str,
        rpc_address: str,
        data_address: str,
        interval_seconds: float,
    ) -> None:
        self._worker = worker
        self._controller = controller
        self._settings = settings
        self._node_id = node_id
        self._rpc_address = rpc_address
        self._data_address = data_address
        self._interval_seconds = interval_seconds
        self._well = True

    async def register(self) -> None:
        """Returns once the controller knows the worker; a controller that is away is waited for."""
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                await self._register()
                return
            except PenstockError as error:
                if error.retry is RetryHint.NEVER:
                    raise
                self._failed(error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY_SECONDS)

    async def run(self) -> None:
        """Beats until it is cancelled. A job does not depend on it: whatever fails is tried again."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                await self._beat()
                self._well = True
            except PenstockError as error:
                self._failed(error)

    async def _beat(self) -> None:
        request = proto.HeartbeatRequest(
            worker_id=self._worker.id,
            job=None if self._worker.job is None else self._worker.job.to_proto(),
            metrics=metrics_to_proto(self._worker.execution),
        )
        async with calling(self._settings):
            answer = await self._controller.Heartbeat(request)
        if answer.fenced:
            self._worker.fence()
        elif not answer.known:
            await self._register()
            self._worker.report_ended_again()

    async def _register(self) -> None:
        request = proto.RegisterWorkerRequest(
            worker_id=self._worker.id,
            node_id=self._node_id,
            rpc_address=self._rpc_address,
            data_address=self._data_address,
            job=None if self._worker.job is None else self._worker.job.to_proto(),
        )
        async with calling(self._settings):
            await self._controller.RegisterWorker(request)

    def _failed(self, error: PenstockError) -> None:
        if self._well:
            log.warning(LogEvent.HEARTBEAT_FAILED, worker=self._worker.id, reason=str(error))
        self._well = False
