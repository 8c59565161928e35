"""Jobs with twins of everything around them: whatever happens in whatever order, some things always hold."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import ErrorDomain, FencedError, RetryHint
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.common.jobs import JobState, RestartMode, StopMode
from penstock.common.program import NodeKey
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.common.testing import eventually
from penstock.controller.jobs import Jobs
from penstock.controller.journal import WriteJournal
from penstock.controller.metrics import MetricsStore
from penstock.controller.output import Outputs
from penstock.controller.placement import Shortage
from penstock.controller.records import EventKind, Failure, JobConfig, JobStatus, TaskId, TaskOwner, tasks_of
from penstock.controller.registry import Registry, Worker
from penstock.controller.runner import Ports
from penstock.controller.schedulers.base import WorkerGrant
from penstock.controller.states.machine import TRANSITIONS, Machine
from penstock.controller.testing import MemoryStore, job_config, quick_settings, wall_clock
from penstock.controller.workers import ExecutionPlan, WorkerStatus

SETTINGS = quick_settings(
    poll_interval="1ms",
    heartbeat_timeout="1h",
    node_timeout="1h",
    restart_backoff="1ms",
    stop_timeout="5ms",
    start_timeout="20ms",
    adopt_timeout="5ms",
    healthy_after="5ms",
    max_restarts="3",
)


class World:
    """One job, its controller, and workers that do only what they are told to have done."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.store = MemoryStore()
        self.store.configs[config.id] = config
        self.journal = WriteJournal(self.store, lambda entry: None)
        self.registry = Registry(
            heartbeat_timeout=SETTINGS.heartbeat_timeout, node_timeout=SETTINGS.node_timeout, clock=time.monotonic
        )
        self.begun: list[Generation] = []
        self.asked: list[TaskOwner] = []
        self.workers: dict[WorkerId, TaskOwner] = {}
        machine = Machine(self.journal, self, wall_clock)
        ports = Ports(machine, self, self.registry, self.store, self, SETTINGS, time.monotonic)
        outputs, metrics = Outputs(max_rows=9, max_bytes=99, kept=1), MetricsStore(kept=1)
        self.jobs = Jobs(self.store, self.journal, ports, outputs, metrics)

    @property
    def status(self) -> JobStatus:
        return self.store.statuses.get(self.config.id, JobStatus(self.config.id))

    def want(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes, revision=self.config.revision + 1)
        self.store.configs[self.config.id] = self.config

    def moved(self, before: JobStatus, after: JobStatus, duration_seconds: float) -> None:
        """The machine's observer."""

    # The scheduler

    async def start_workers(
        self, owner: TaskOwner, slices: int, on_shortage: Callable[[Shortage], None]
    ) -> tuple[WorkerGrant, ...]:
        self._check_written(owner)
        grants = tuple(WorkerGrant(WorkerId.new(), (slice_,)) for slice_ in range(slices))
        for grant in grants:
            self.workers[grant.worker_id] = owner
            self.registry.own(grant.worker_id, owner)
            self.jobs.register_worker(grant.worker_id, None, "", "", None)
        return grants

    async def stop_workers(self, owner: TaskOwner, *, force: bool) -> None:
        self._check_written(owner)
        for worker in [worker for worker, owned in self.workers.items() if owned == owner]:
            del self.workers[worker]
            self.registry.release_worker(worker)

    async def close(self) -> None: ...

    # The workers

    async def start_execution(self, plan: ExecutionPlan, workers: Mapping[WorkerId, Worker], worker: Worker) -> None:
        self._check_written(plan.owner)
        self.begun.append(plan.owner.generation)

    async def stop_execution(self, worker: Worker, owner: TaskOwner, mode: StopMode) -> None:
        self._check_written(owner)
        assert self.workers[worker.id] == owner
        self.asked.append(owner)

    async def get_status(self, worker: Worker) -> WorkerStatus:
        raise AssertionError("nothing is adopted here")

    def _check_written(self, owner: TaskOwner) -> None:
        """Nothing is done for a generation but the newest, nor before that is known to survive a crash."""
        assert owner == self.status.owner


def run(scenario: Callable[[World], Coroutine[None, None, None]], config: JobConfig | None = None) -> World:
    """A loop of its own for each example."""

    async def main() -> World:
        world = World(config or job_config())
        tasks = [asyncio.create_task(work) for work in (world.jobs.run(asyncio.Event()), world.journal.run())]
        try:
            await scenario(world)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            assert task.cancelled(), task.exception()
        return world

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


EVENTS = st.one_of(
    st.tuples(st.just("want"), st.sampled_from(
        [
            *({"stop_mode": mode} for mode in StopMode),
            *({"parallelism": number} for number in (1, 2, 3)),
            *({"restart_nonce": number, "restart_mode": mode} for number in (1, 2) for mode in RestartMode),
        ]
    )),
    st.tuples(st.just("start"), st.integers(0, 2)),
    st.tuples(st.just("finish"), st.integers(0, 2)),
    st.tuples(st.just("fail"), st.sampled_from(ErrorDomain)),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("end"), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002, 0.01])),
    st.tuples(st.just("away"), st.booleans()),
)  # fmt: skip


async def happen(world: World, event: str, argument: Any) -> None:
    """Of the newest generation that began, or of the one before it, which must be refused."""
    jobs, status = world.jobs, world.status
    owner = status.owner
    tasks = list(tasks_of(world.store.program.at_parallelism(max(status.parallelism, 1))))
    workers = [worker for worker, owned in world.workers.items() if owned == owner]
    match event:
        case "want":
            world.want(**argument)
        case "wait":
            await asyncio.sleep(argument)
        case "away":
            world.store.away = argument
        case "start" if not jobs.is_fenced(owner):
            for task in tasks[argument:]:
                jobs.task_started(owner, task)
        case "finish" if not jobs.is_fenced(owner):
            for task in tasks[argument:]:
                jobs.task_finished(owner, task, SubtaskMetrics())
        case "fail" if not jobs.is_fenced(owner):
            jobs.task_failed(owner, Failure("it broke", None, argument, RetryHint.BACKOFF, tasks[0]))
        case "lose" if argument < len(workers):
            world.registry.lose_worker(workers[argument], "it is gone")
        case "end" if argument < len(workers) and not jobs.is_fenced(owner):
            jobs.worker_finished(owner, workers[argument])
    old = TaskOwner(owner.job_id, Generation(owner.generation - 1))
    with pytest.raises(FencedError):
        jobs.task_finished(old, tasks[0], SubtaskMetrics())
    with pytest.raises(FencedError):
        jobs.task_failed(old, Failure.lost("late"))
    with pytest.raises(FencedError):
        jobs.heartbeat(WorkerId.new(), old, ())
    with pytest.raises(FencedError):
        jobs.register_worker(WorkerId.new(), None, "", "", old)
    await asyncio.sleep(0)


def check_history(world: World) -> None:
    events = [event for entry in world.store.entries for event in entry.events if event.kind is EventKind.STATE]
    path = [JobState.CREATED, *(event.to_state for event in events if event.to_state)]
    assert [event.from_state for event in events] == path[:-1]
    assert all(after in TRANSITIONS[before] for before, after in itertools.pairwise(path))
    generations = [event.generation for event in events]
    assert generations == sorted(generations)
    assert world.begun == sorted(world.begun)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_whatever_happens_jobs_keep_to_the_table_and_a_forced_stop_brings_them_to_rest(
    events: list[tuple[str, Any]],
) -> None:
    async def scenario(world: World) -> None:
        for event, argument in events:
            await happen(world, event, argument)
        world.store.away = False
        world.want(stop_mode=StopMode.FORCE)

        async def is_at_rest() -> bool:
            return world.status.state.is_terminal and world.journal.waiting == 0 and not world.jobs.states

        try:
            await eventually(is_at_rest, 5)
        except TimeoutError:
            raise AssertionError(f"still {world.status}") from None
        assert not world.workers

    check_history(run(scenario))


def test_a_job_at_rest_costs_no_task_and_runs_again_when_wanted() -> None:
    async def scenario(world: World) -> None:
        async def is_in(state: JobState) -> bool:
            return world.status.state is state

        async def all_started() -> bool:
            await happen(world, "start", 0)
            return await is_in(JobState.RUNNING)

        await eventually(all_started)
        world.want(stop_mode=StopMode.FORCE)
        await eventually(lambda: is_in(JobState.STOPPED))
        assert world.jobs.states == ()
        world.want(stop_mode=StopMode.NONE)
        await eventually(all_started)
        assert world.status.generation == 2

    world = run(scenario)
    assert world.begun == [1, 2]


def test_jobs_that_do_not_exist_are_fenced() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(FencedError):
            world.jobs.task_started(TaskOwner(JobId.new(), Generation(1)), TaskId(NodeKey("in"), 0))

    run(scenario)
