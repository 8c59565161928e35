"""Workers as child processes of the controller: they end when it does."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta

import structlog

from penstock.common.errors import ExternalError
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.controller.registry import Registry
from penstock.controller.schedulers.embedded import EmbeddedScheduler, WorkerFactory

log = structlog.get_logger(__name__)


def process_scheduler(
    *,
    command: str,
    controller: Callable[[], str],
    worker_slots: int,
    stop_timeout: timedelta,
    registry: Registry,
) -> EmbeddedScheduler:
    """A scheduler whose workers are processes of their own; `command` is by default this Python's penstock.worker."""
    arguments = shlex.split(command) or [sys.executable, "-m", "penstock.worker"]
    return EmbeddedScheduler(
        process_factory(arguments, os.environ, stop_timeout),
        controller=controller,
        worker_slots=worker_slots,
        registry=registry,
    )


def process_factory(arguments: list[str], environment: Mapping[str, str], stop_timeout: timedelta) -> WorkerFactory:
    async def start(worker: WorkerId, controller: str) -> WorkerProcess:
        # A pipe of our own, never written to: that it closes tells the worker that the controller is gone. With one of
        # asyncio's, a process would not have ended before all that share it have.
        stdin, lifeline = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=stdin,
                env={
                    **environment,
                    "PENSTOCK__WORKER__ID": worker,
                    "PENSTOCK__WORKER__CONTROLLER": controller,
                    "PENSTOCK__WORKER__EXIT_WITH_PARENT": "true",
                },
                start_new_session=True,
            )
        except OSError as error:
            os.close(lifeline)
            raise ExternalError(f"a worker could not be started: {error.strerror or error}") from error
        finally:
            os.close(stdin)
        log.info(LogEvent.WORKER_SPAWNED, worker=worker, pid=process.pid)
        return WorkerProcess(worker, process, lifeline, stop_timeout)

    return start


class WorkerProcess:
    """A worker's process, and through its process group its JVM."""

    def __init__(
        self, worker: WorkerId, process: asyncio.subprocess.Process, lifeline: int, stop_timeout: timedelta
    ) -> None:
        self._worker = worker
        self._process = process
        self._lifeline = lifeline
        self._stop_timeout = stop_timeout

    async def wait(self) -> None:
        code = await self._process.wait()
        # Nothing that it started may outlive it.
        self._signal(signal.SIGKILL)
        os.close(self._lifeline)
        log.info(LogEvent.WORKER_EXITED, worker=self._worker, pid=self._process.pid, code=code)

    async def stop(self, *, force: bool) -> None:
        if not force:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._stop_timeout.total_seconds()):
                    await self._process.wait()
        if self._process.returncode is None:
            log.info(LogEvent.WORKER_KILLED, worker=self._worker, pid=self._process.pid)
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
