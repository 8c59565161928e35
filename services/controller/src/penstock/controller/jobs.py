"""All jobs under way: finds what is wanted, runs each job in a task of its own, and hands workers' reports to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Protocol

import structlog

from penstock.common.errors import DatabaseUnavailable, ExternalError, FencedError, NotFound
from penstock.common.events import LogEvent
from penstock.common.ids import Epoch, Generation, JobId, NodeId, SavepointId, WorkerId
from penstock.common.jobs import JobState, StopMode
from penstock.common.proto.controller_pb2 import CheckpointStep
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.common.subjects import JobTopic, all_jobs
from penstock.controller.checkpoints.messages import Report, TaskFinished
from penstock.controller.execution import Execution
from penstock.controller.metrics import MetricsStore
from penstock.controller.output import OutputData, Outputs
from penstock.controller.records import Failure, JobStatus, TaskId, TaskOwner
from penstock.controller.runner import JobRunner, Ports, wants_to_run
from penstock.controller.store import StoredJob

log = structlog.get_logger(__name__)


class JobStore(Protocol):
    async def unsettled_jobs(self) -> tuple[int, tuple[StoredJob, ...]]: ...

    async def changed_jobs(self, since: int) -> tuple[StoredJob, ...]: ...

    async def deleted_jobs(self, jobs: Collection[JobId]) -> tuple[JobId, ...]: ...

    async def job_state(self, job: JobId) -> JobState | None: ...


class Journal(Protocol):
    @property
    def waiting(self) -> int: ...


class WakeUps(Protocol):
    def subscribe(self, subject: str) -> AbstractAsyncContextManager[AsyncIterator[object]]: ...


class Jobs:
    def __init__(
        self, store: JobStore, journal: Journal, ports: Ports, outputs: Outputs, metrics: MetricsStore
    ) -> None:
        self._store = store
        self._journal = journal
        self._ports = ports
        self._outputs = outputs
        self._metrics = metrics
        self._runners: dict[JobId, JobRunner] = {}
        # Where jobs came to rest, until that is sure to be in the store.
        self._rested: dict[JobId, JobStatus] = {}
        self._revision = 0
        self._changed = asyncio.Event()
        ports.registry.on_worker_lost(self._worker_lost)

    # What is wanted

    async def run(self, loaded: asyncio.Event) -> None:
        """Run jobs until cancelled; `loaded` is set once reports can be told from those of the past."""
        async with asyncio.TaskGroup() as group:
            self._revision, unsettled = await self._load()
            for stored in unsettled:
                self._apply(stored, group)
            loaded.set()
            while True:
                await self._poll(group)

    async def listen(self, bus: WakeUps) -> None:
        """Look for changes as soon as the api says that there are some."""
        async with bus.subscribe(all_jobs(JobTopic.DESIRED)) as messages:
            async for _ in messages:
                self._changed.set()

    async def watch_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._ports.settings.tick.total_seconds())
            self._ports.registry.check_overdue()

    @property
    def states(self) -> tuple[JobState, ...]:
        """The state of each job under way."""
        return tuple(runner.status.state for runner in tuple(self._runners.values()))

    def count_tasks(self, worker: WorkerId) -> int:
        owner = self._ports.registry.owners.get(worker)
        runner = self._runners.get(owner.job_id) if owner else None
        execution = runner.execution if runner else None
        return len(execution.workers.get(worker, ())) if execution and execution.owner == owner else 0

    async def _load(self) -> tuple[int, tuple[StoredJob, ...]]:
        waiting = False
        while True:
            try:
                return await self._store.unsettled_jobs()
            except DatabaseUnavailable as error:
                if not waiting:
                    log.warning(LogEvent.CONFIG_POLL_FAILED, reason=str(error))
                waiting = True
                await asyncio.sleep(self._ports.settings.poll_interval.total_seconds())

    async def _poll(self, group: asyncio.TaskGroup) -> None:
        interval = self._ports.settings.poll_interval.total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await self._changed.wait()
        self._changed.clear()
        try:
            await self._look(group)
        except DatabaseUnavailable as error:
            log.warning(LogEvent.CONFIG_POLL_FAILED, reason=str(error))
            await self._await_database(group)
            log.info(LogEvent.CONFIG_POLL_RESUMED)

    async def _await_database(self, group: asyncio.TaskGroup) -> None:
        while True:
            await asyncio.sleep(self._ports.settings.poll_interval.total_seconds())
            with suppress(DatabaseUnavailable):
                await self._look(group)
                return

    async def _look(self, group: asyncio.TaskGroup) -> None:
        # Taken before the store is read, which may still say less.
        settled = set(self._rested) if self._journal.waiting == 0 else set()
        for stored in await self._store.changed_jobs(self._revision):
            self._revision = stored.config.revision
            self._apply(stored, group)
        for job in settled & self._rested.keys():
            del self._rested[job]
        if self._runners:
            for job in await self._store.deleted_jobs(tuple(self._runners)):
                self._delete(job)

    def _apply(self, stored: StoredJob, group: asyncio.TaskGroup) -> None:
        config = stored.config
        runner = self._runners.get(config.id)
        if runner is not None and not runner.ended:
            runner.update(config)
            return
        rested = self._rested.get(config.id)
        status = rested or stored.status or JobStatus(config.id)
        if wants_to_run(config, status):
            self._start(JobRunner(config, status, self._ports, restored=rested is None), group)

    def _start(self, runner: JobRunner, group: asyncio.TaskGroup) -> None:
        job = runner.config.id
        self._rested.pop(job, None)
        self._runners[job] = runner
        self._outputs.open(job)
        self._metrics.open(job)
        group.create_task(self._run_one(runner), name=f"job-{job}")

    async def _run_one(self, runner: JobRunner) -> None:
        job = runner.config.id
        try:
            await runner.run()
        except Exception:
            # A fault of the code, which must not end the other jobs.
            log.exception(LogEvent.STATE_CRASHED, job=job, state=runner.status.state)
        # Another may have been started already, between the job's rest and now.
        if self._runners.get(job) is runner:
            del self._runners[job]
            self._rested[job] = runner.status
            self._outputs.close(job)
            self._metrics.close(job)

    def _delete(self, job: JobId) -> None:
        runner = self._runners.get(job)
        if runner is not None and runner.config.stop_mode is not StopMode.FORCE:
            log.warning(LogEvent.JOB_DELETED, job=job)
            runner.update(replace(runner.config, stop_mode=StopMode.FORCE))

    # What workers report

    def register_worker(
        self, worker: WorkerId, node: NodeId | None, rpc_address: str, data_address: str, owner: TaskOwner | None
    ) -> None:
        if owner is not None and self.is_fenced(owner):
            raise _fenced(owner)
        self._ports.registry.register_worker(worker, node, rpc_address, data_address, owner)
        if owner is not None:
            self._runners[owner.job_id].welcome(worker)

    def heartbeat(self, worker: WorkerId, owner: TaskOwner, metrics: Iterable[tuple[TaskId, SubtaskMetrics]]) -> None:
        """What a worker with a job says every second; raises FencedError."""
        if self.is_fenced(owner):
            self._ports.registry.release_worker(worker)
            raise _fenced(owner)
        self._metrics.update(owner, metrics, final=False)

    def task_started(self, owner: TaskOwner, task: TaskId) -> None:
        runner, execution = self._find(owner)
        execution.record_started(task)
        runner.wake()

    def task_finished(self, owner: TaskOwner, task: TaskId, metrics: SubtaskMetrics) -> None:
        runner, execution = self._find(owner)
        self._metrics.update(owner, [(task, metrics)], final=True)
        execution.record_finished(task)
        runner.report(TaskFinished(task))
        runner.wake()

    def task_failed(self, owner: TaskOwner, failure: Failure) -> None:
        runner, execution = self._find(owner)
        execution.record_failure(runner.judge(failure))
        runner.wake()

    def report(self, owner: TaskOwner, report: Report) -> None:
        """What a task says of a checkpoint."""
        runner, _ = self._find(owner)
        runner.report(report)

    def task_checkpoint_events(
        self, owner: TaskOwner, steps: Iterable[tuple[Epoch, TaskId, CheckpointStep.ValueType, int]]
    ) -> None:
        runner, _ = self._find(owner)
        for epoch, task, step, at_us in steps:
            runner.note_step(epoch, task, step, at_us)

    def worker_finished(self, owner: TaskOwner, worker: WorkerId) -> None:
        runner, execution = self._find(owner)
        execution.record_ended(worker)
        runner.wake()

    def nonfatal_error(self, owner: TaskOwner, failure: Failure) -> None:
        runner, _ = self._find(owner)
        runner.warn(failure)

    def is_fenced(self, owner: TaskOwner) -> bool:
        """Whether a generation is over: its job has moved on, has ended, or is no more."""
        runner = self._runners.get(owner.job_id)
        return runner is None or not runner.expects(owner)

    def _find(self, owner: TaskOwner) -> tuple[JobRunner, Execution]:
        runner = self._runners.get(owner.job_id)
        if runner is None or not runner.expects(owner):
            raise _fenced(owner)
        if runner.execution is None:
            raise ExternalError(f"job {owner.job_id} is being taken over from an earlier controller")
        return runner, runner.execution

    def _worker_lost(self, worker: WorkerId, owner: TaskOwner, reason: str) -> None:
        runner = self._runners.get(owner.job_id)
        execution = runner.execution if runner else None
        if runner is None or execution is None or execution.owner != owner:
            return
        # A worker whose tasks are done ends by itself.
        if worker in execution.live_workers:
            log.info(LogEvent.WORKER_LOST, job=owner.job_id, worker=worker, reason=reason)
        execution.record_ended(worker, reason)
        runner.wake()

    # What users ask for

    def want_savepoint(self, job: JobId, savepoint: SavepointId) -> bool:
        """Have a job make a checkpoint for a savepoint as soon as it can; False when it is at rest."""
        runner = self._runners.get(job)
        if runner is not None:
            runner.want_savepoint(savepoint)
        return runner is not None

    def is_under_way(self, job: JobId) -> bool:
        return job in self._runners

    # What users look at

    async def send_output(self, owner: TaskOwner, data: OutputData, sequence: int) -> None:
        """Returns when there is room for more."""
        self._find(owner)
        await self._outputs.of(owner.job_id).put(data, owner.generation, sequence)

    async def read_output(self, job: JobId) -> AsyncIterator[OutputData]:
        """The preview rows of a job, until it has ended; those of one that ended are kept for a while."""
        runs = job in self._runners or not await self._is_at_rest(job)
        buffer = self._outputs.of(job) if runs else self._outputs.find(job)
        if buffer is None:
            return
        async for data in buffer.read():
            yield data

    async def job_metrics(self, job: JobId) -> tuple[Generation, Mapping[TaskId, SubtaskMetrics]]:
        """The last metrics of each subtask, with the preview rows that nobody saw."""
        found = self._metrics.of(job)
        if found is None:
            if job not in self._runners:
                await self._is_at_rest(job)
            return Generation(0), {}
        generation, subtasks = found
        return generation, self._with_dropped(job, subtasks)

    async def _is_at_rest(self, job: JobId) -> bool:
        state = await self._store.job_state(job)
        if state is None:
            raise NotFound(f"there is no job {job}")
        return state.is_terminal

    def _with_dropped(self, job: JobId, subtasks: Mapping[TaskId, SubtaskMetrics]) -> Mapping[TaskId, SubtaskMetrics]:
        runner, buffer = self._runners.get(job), self._outputs.find(job)
        execution = runner.execution if runner else None
        if execution is None or buffer is None or not buffer.dropped:
            return subtasks
        shown = dict(subtasks)
        for (table, subtask), rows in buffer.dropped.items():
            node = execution.sink_of(table)
            if node is not None and (metrics := shown.get(TaskId(node, subtask))) is not None:
                copy = SubtaskMetrics()
                copy.CopyFrom(metrics)
                copy.dropped_rows += rows
                shown[TaskId(node, subtask)] = copy
        return shown


def _fenced(owner: TaskOwner) -> FencedError:
    return FencedError(f"generation {owner.generation} of job {owner.job_id} is over")
