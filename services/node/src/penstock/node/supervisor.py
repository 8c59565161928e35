"""The workers of this node: gives them out, keeps some warm, reaps the dead and ends the rest.

A worker is a standby until it is given out for slots, and then never becomes one again: it runs one job and ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog

from penstock.common.errors import ExternalError, NotFound
from penstock.common.events import LogEvent
from penstock.common.ids import WorkerId
from penstock.node.slots import Slots

log = structlog.get_logger(__name__)


class Process(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def tail(self) -> tuple[str, ...]: ...

    async def wait(self) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


Spawn = Callable[[WorkerId], Awaitable[Process]]


@dataclass(frozen=True, slots=True)
class StandbyPolicy:
    """How many workers are kept warm, and how soon another follows one that crashed."""

    workers: int
    backoff_min: timedelta
    backoff_max: timedelta

    def delay_seconds(self, crashes: int) -> float:
        """The wait after the nth crash in a row, counted from 1."""
        return min(self.backoff_min.total_seconds() * (1 << min(crashes - 1, 63)), self.backoff_max.total_seconds())


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    worker_id: WorkerId
    owner: str
    slots: int
    pid: int


@dataclass(eq=False, slots=True)
class _Worker:
    id: WorkerId
    process: Process
    started_at: float
    ended: asyncio.Event
    owner: str = ""
    stopping: bool = False


class Supervisor:
    def __init__(
        self,
        spawn: Spawn,
        *,
        slots: int,
        standby: StandbyPolicy,
        stop_timeout: timedelta,
        clock: Callable[[], float],
    ) -> None:
        self._spawn = spawn
        self._slots = Slots(slots)
        self._standby = standby
        self._stop_timeout = stop_timeout
        self._clock = clock
        self._workers: dict[WorkerId, _Worker] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._crashes = 0
        self._retry_at = 0.0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def slots(self) -> Slots:
        return self._slots

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every worker that is alive."""
        return tuple(
            WorkerInfo(worker.id, worker.owner, self._slots.taken.get(worker.id, 0), worker.process.pid)
            for worker in self._workers.values()
        )

    @property
    def alive(self) -> tuple[int, tuple[WorkerId, ...]]:
        """The slots that are used, and the workers that are alive."""
        return self._slots.used, tuple(self._workers)

    async def changed(self) -> None:
        """Return once workers or slots have changed since the last call."""
        await self._changed.wait()
        self._changed.clear()

    async def start_worker(self, owner: str, slots: int) -> WorkerId:
        """Give out the oldest standby, which is the likeliest to be warm, or a new worker."""
        standby = next((worker for worker in self._workers.values() if not worker.owner and not worker.stopping), None)
        worker_id = standby.id if standby else WorkerId.new()
        # Before anything is waited for: nobody else can take them meanwhile.
        self._slots = self._slots.take(worker_id, slots)
        if standby is not None:
            standby.owner = owner
        else:
            try:
                await self._start(worker_id, owner)
            except BaseException:
                self._slots = self._slots.release(worker_id)
                raise
        log.info(LogEvent.WORKER_GIVEN, worker=worker_id, owner=owner, slots=slots, warm=standby is not None)
        self._wanted.set()
        self._changed.set()
        return worker_id

    async def stop_worker(self, worker_id: WorkerId, *, force: bool) -> None:
        """End a worker; one that is killed has ended when this returns, another has `stop_timeout` to do so. Its slots
        are free at once: the next job need not wait for a JVM to wind down."""
        worker = self._workers.get(worker_id)
        if worker is None:
            raise NotFound(f"there is no worker {worker_id} on this node")
        worker.stopping = True
        self._slots = self._slots.release(worker_id)
        self._changed.set()
        if force:
            log.info(LogEvent.WORKER_KILLED, worker=worker_id, owner=worker.owner)
            worker.process.kill()
            await worker.ended.wait()
        else:
            worker.process.terminate()
            self._watch(self._kill_later(worker), name=f"kill-{worker_id}")

    async def keep_standby(self) -> None:
        """Keep the wanted number of workers warm, until cancelled."""
        while True:
            standby = sum(not worker.owner and not worker.stopping for worker in self._workers.values())
            if standby >= self._standby.workers:
                await self._wanted.wait()
                self._wanted.clear()
                continue
            delay = self._retry_at - self._clock()
            if delay > 0:
                await asyncio.sleep(delay)
                continue
            try:
                await self._start(WorkerId.new(), owner="")
            except ExternalError as error:
                self._note_crash(error.message, ())

    async def close(self) -> None:
        """End all workers: first they are asked to, then killed."""
        workers = tuple(self._workers.values())
        for worker in workers:
            worker.stopping = True
            worker.process.terminate()
        await asyncio.gather(*map(self._kill_later, workers))
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _start(self, worker_id: WorkerId, owner: str) -> None:
        try:
            process = await self._spawn(worker_id)
        except OSError as error:
            raise ExternalError(f"a worker could not be started: {error.strerror or error}") from error
        worker = _Worker(worker_id, process, self._clock(), asyncio.Event(), owner)
        self._workers[worker_id] = worker
        log.info(LogEvent.WORKER_SPAWNED, worker=worker_id, pid=process.pid)
        self._watch(self._reap(worker), name=f"reap-{worker_id}")
        self._changed.set()

    async def _reap(self, worker: _Worker) -> None:
        code = await worker.process.wait()
        del self._workers[worker.id]
        self._slots = self._slots.release(worker.id)
        worker.ended.set()
        self._changed.set()
        self._wanted.set()
        if worker.owner or worker.stopping:
            level = log.info if code == 0 or worker.stopping else log.warning
            last_words = {} if code == 0 or worker.stopping else {"stderr": worker.process.tail}
            level(LogEvent.WORKER_EXITED, worker=worker.id, owner=worker.owner, code=code, **last_words)
            self._crashes = 0
        else:
            self._note_crash(f"it ended with code {code}", worker.process.tail, worker)

    def _note_crash(self, reason: str, tail: tuple[str, ...], worker: _Worker | None = None) -> None:
        lived = self._clock() - worker.started_at if worker else 0.0
        # One that was warm for long is another case than one that cannot start.
        self._crashes = 1 if lived > self._standby.backoff_max.total_seconds() else self._crashes + 1
        delay = self._standby.delay_seconds(self._crashes)
        self._retry_at = self._clock() + delay
        log.error(LogEvent.STANDBY_FAILED, reason=reason, stderr=tail, retry_ms=round(delay * 1000))

    async def _kill_later(self, worker: _Worker) -> None:
        try:
            async with asyncio.timeout(self._stop_timeout.total_seconds()):
                await worker.ended.wait()
        except TimeoutError:
            log.warning(LogEvent.WORKER_KILLED, worker=worker.id, owner=worker.owner)
            worker.process.kill()
            await worker.ended.wait()

    def _watch(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)
