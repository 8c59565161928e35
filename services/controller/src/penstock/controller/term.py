"""One time that this controller leads: everything that acts on jobs, from the lease won to the lease lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from penstock.common import service
from penstock.common.bus import Bus
from penstock.common.checkpoint.settings import CheckpointSettings, open_checkpoints
from penstock.common.database import Pool
from penstock.common.errors import SettingsError
from penstock.common.rpc import RpcSettings
from penstock.controller.announcements import announcer
from penstock.controller.checkpoints.cycle import CyclePorts
from penstock.controller.checkpoints.job import Checkpointing
from penstock.controller.checkpoints.keeper import Keeper
from penstock.controller.checkpoints.store import PostgresCheckpoints
from penstock.controller.drains import Drains
from penstock.controller.election import Mandate
from penstock.controller.jobs import Jobs
from penstock.controller.journal import WriteJournal
from penstock.controller.lease import LeaderWrites
from penstock.controller.metrics import ControllerMetrics, MetricsStore
from penstock.controller.mirror import Mirror
from penstock.controller.output import Outputs
from penstock.controller.registry import Registry
from penstock.controller.runner import Ports
from penstock.controller.schedulers.base import Scheduler
from penstock.controller.schedulers.embedded import EmbeddedScheduler, WorkerFactory
from penstock.controller.schedulers.node import NodeScheduler
from penstock.controller.schedulers.process import process_scheduler
from penstock.controller.settings import ControllerSettings
from penstock.controller.states.machine import Machine
from penstock.controller.store import PostgresStore
from penstock.controller.workers import RpcWorkers

_LAST_WRITES_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What outlives a term."""

    process: service.Context
    settings: ControllerSettings
    pool: Pool
    bus: Bus
    metrics: ControllerMetrics
    address: Callable[[], str]
    start_worker: WorkerFactory | None
    checkpoint_folder: Path | None

    @property
    def rpc(self) -> RpcSettings:
        return self.process.config.section("rpc", RpcSettings)


@dataclass(frozen=True, slots=True)
class Term:
    """What can be asked while this controller leads."""

    jobs: Jobs
    registry: Registry
    journal: WriteJournal
    ended: asyncio.Event = field(default_factory=asyncio.Event)


async def lead(
    around: Surroundings,
    mandate: Mandate,
    *,
    refused: Callable[[], None],
    begun: Callable[[Term], None],
    closing: AsyncExitStack,
) -> None:
    """Lead until cancelled; `begun` is told once jobs are loaded, and `refused` when another turns out to lead.

    Workers go on however it ends, for the next leader to adopt; those that this process keeps alive, until `closing`.
    """
    settings, bus = around.settings, around.bus
    registry = Registry(
        heartbeat_timeout=settings.heartbeat_timeout, node_timeout=settings.node_timeout, clock=time.monotonic
    )
    scheduler = _scheduler(around, registry, mandate.generation)
    closing.push_async_callback(scheduler.close)
    writes = LeaderWrites(around.pool, mandate.generation, refused)
    store = PostgresStore(around.pool, writes)
    journal = WriteJournal(store, announcer(bus))
    workers = RpcWorkers(around.rpc, mandate.generation)
    machine = Machine(journal, around.metrics, _wall_clock)
    checkpoints, keeper = _checkpoints(around, writes, journal, workers) or (None, None)
    ports = Ports(machine, scheduler, registry, store, workers, settings, time.monotonic, checkpoints)
    outputs = Outputs(max_rows=settings.output_rows, max_bytes=settings.output_bytes, kept=settings.kept_outputs)
    jobs = Jobs(store, journal, ports, outputs, MetricsStore(settings.kept_metrics))
    mirror = Mirror(store, registry, jobs.count_tasks, time.monotonic, _wall_clock)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(workers.close)
        writing = asyncio.create_task(journal.run(), name="journal")
        stack.push_async_callback(_finish_writing, journal, writing, mandate)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(_watch(writing), name="journal-watch")
        loaded, drained = asyncio.Event(), asyncio.Event()
        group.create_task(jobs.run(loaded), name="jobs")
        group.create_task(Drains(store, registry, settings.poll_interval).run(drained), name="drains")
        await loaded.wait()
        await drained.wait()
        group.create_task(jobs.listen(bus), name="wake-ups")
        group.create_task(jobs.watch_heartbeats(), name="heartbeats")
        group.create_task(mirror.run(), name="mirror")
        if keeper is not None:
            group.create_task(keeper.run(jobs), name="keeper")
        group.create_task(bus.ensure_event_stream(), name="event-stream")
        begun(Term(jobs, registry, journal))


def _checkpoints(
    around: Surroundings, writes: LeaderWrites, journal: WriteJournal, workers: RpcWorkers
) -> tuple[Checkpointing, Keeper] | None:
    config = around.process.config
    storage = open_checkpoints(config, around.checkpoint_folder)
    if storage is None:
        return None
    settings = config.section("checkpoints", CheckpointSettings)
    store = PostgresCheckpoints(around.pool, writes)
    keeper = Keeper(storage, store, retained=settings.retained, interval=around.settings.poll_interval)
    cycle = CyclePorts(storage, journal, workers, keeper, around.metrics, time.monotonic, _wall_clock)
    return Checkpointing(settings, store, cycle), keeper


def _scheduler(around: Surroundings, registry: Registry, generation: int) -> Scheduler:
    settings = around.settings
    match settings.scheduler:
        case "node":
            return NodeScheduler(
                registry, around.rpc, policy=settings.placement, share_after=settings.share_after, leads=generation
            )
        case "process":
            return process_scheduler(
                command=settings.worker_command,
                controller=around.address,
                worker_slots=settings.worker_slots,
                stop_timeout=settings.stop_timeout,
                registry=registry,
            )
        case "embedded":
            if around.start_worker is None:
                hint = "use `penstock up` or `penstock run`, or set controller.scheduler to process or node"
                raise SettingsError("a controller in a process of its own has no embedded workers", hint=hint)
            return EmbeddedScheduler(
                around.start_worker, controller=around.address, worker_slots=settings.worker_slots, registry=registry
            )


async def _finish_writing(journal: WriteJournal, writing: asyncio.Task[None], mandate: Mandate) -> None:
    """What happened last is written too, unless Postgres is away or it is no longer ours to write."""
    try:
        if not mandate.lost.is_set():
            async with asyncio.timeout(_LAST_WRITES_SECONDS):
                await journal.flushed()
    except TimeoutError:
        pass
    finally:
        writing.cancel()
        await asyncio.wait({writing})


async def _watch(writing: asyncio.Task[None]) -> None:
    """Let the term fail when the journal does, and not the other way round."""
    await asyncio.shield(writing)


def _wall_clock() -> datetime:
    return datetime.now(UTC)
