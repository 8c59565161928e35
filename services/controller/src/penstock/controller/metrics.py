"""What subtasks last said of themselves, for the api; and the controller's own figures, for Prometheus."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.common.ids import Generation, JobId
from penstock.common.jobs import JobState
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.controller.checkpoints.records import CheckpointRecord, CheckpointState
from penstock.controller.placement import Capacity
from penstock.controller.records import JobStatus, TaskId, TaskOwner

_SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)


@dataclass(slots=True)
class _JobMetrics:
    generation: Generation
    subtasks: dict[TaskId, SubtaskMetrics] = field(default_factory=dict)
    final: set[TaskId] = field(default_factory=set)


class MetricsStore:
    """The last metrics of each subtask, as they came: of all jobs under way, and of the last that ended."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._jobs: dict[JobId, _JobMetrics] = {}
        self._ended: OrderedDict[JobId, None] = OrderedDict()

    def update(self, owner: TaskOwner, subtasks: Iterable[tuple[TaskId, SubtaskMetrics]], *, final: bool) -> None:
        """Take what a worker says; a subtask's final metrics are not replaced by a late heartbeat."""
        job = self._jobs.get(owner.job_id)
        if job is None or job.generation < owner.generation:
            job = self._jobs[owner.job_id] = _JobMetrics(owner.generation)
        if job.generation != owner.generation:
            return
        for task, metrics in subtasks:
            if task not in job.final:
                job.subtasks[task] = metrics
                if final:
                    job.final.add(task)

    def of(self, job: JobId) -> tuple[Generation, Mapping[TaskId, SubtaskMetrics]] | None:
        found = self._jobs.get(job)
        return None if found is None else (found.generation, found.subtasks)

    def open(self, job: JobId) -> None:
        """A job is under way."""
        self._ended.pop(job, None)

    def close(self, job: JobId) -> None:
        """A job has ended; its metrics are kept for a while."""
        if job not in self._jobs:
            return
        self._ended[job] = None
        while len(self._ended) > self._kept:
            oldest, _ = self._ended.popitem(last=False)
            del self._jobs[oldest]


class ControllerMetrics:
    """What the state machine does, as it does it; counts of the present are asked for when they are read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarts = PrometheusCounter(
            "penstock_controller_job_restarts", "Restarts of jobs after a failure", registry=registry
        )
        self._moves = PrometheusCounter(
            "penstock_controller_transitions", "Moves of jobs into a state", ["state"], registry=registry
        )
        self._durations = Histogram(
            "penstock_controller_state_seconds",
            "How long jobs were in a state before they left it",
            ["state"],
            buckets=_SECONDS,
            registry=registry,
        )

        self._checkpoints = PrometheusCounter(
            "penstock_controller_checkpoints",
            "Checkpoints that ended, by what became of them",
            ["state"],
            registry=registry,
        )
        self._checkpoint_durations = Histogram(
            "penstock_controller_checkpoint_seconds",
            "How long checkpoints took until they were ready",
            buckets=_SECONDS,
            registry=registry,
        )
        self._checkpoint_bytes = PrometheusCounter(
            "penstock_controller_checkpoint_bytes", "Bytes written for checkpoints that became ready", registry=registry
        )

    def checkpoint_ended(self, record: CheckpointRecord) -> None:
        self._checkpoints.labels(record.state).inc()
        if record.state is CheckpointState.READY and record.finished_at is not None:
            self._checkpoint_durations.observe((record.finished_at - record.started_at).total_seconds())
            self._checkpoint_bytes.inc(record.bytes)

    def moved(self, before: JobStatus, after: JobStatus, duration_seconds: float) -> None:
        self._moves.labels(after.state).inc()
        self._durations.labels(before.state).observe(duration_seconds)
        if after.state is JobState.RECOVERING:
            self._restarts.inc()


class _Jobs(Protocol):
    @property
    def states(self) -> tuple[JobState, ...]: ...


class _Registry(Protocol):
    @property
    def capacities(self) -> tuple[Capacity, ...]: ...


class _Journal(Protocol):
    @property
    def waiting(self) -> int: ...


class Present(Protocol):
    """What there is while this controller leads."""

    @property
    def jobs(self) -> _Jobs: ...

    @property
    def registry(self) -> _Registry: ...

    @property
    def journal(self) -> _Journal: ...


class Leadership(Protocol):
    @property
    def leads(self) -> bool: ...

    @property
    def generation(self) -> int: ...

    @property
    def refused_writes(self) -> int: ...


class PresentMetrics(Collector):
    """Whether this controller leads, and if it does: jobs by state, nodes, slots and what waits to be written."""

    def __init__(self, present: Callable[[], Present | None], leadership: Leadership) -> None:
        self._present = present
        self._leadership = leadership

    def collect(self) -> Iterator[Metric]:
        leadership, present = self._leadership, self._present()
        yield GaugeMetricFamily("penstock_controller_leads", "Whether it leads", value=leadership.leads)
        yield GaugeMetricFamily(
            "penstock_controller_generation", "Of the newest leader that it knows of", value=leadership.generation
        )
        yield CounterMetricFamily(
            "penstock_controller_writes_refused",
            "Writes that came too late, since another led",
            value=leadership.refused_writes,
        )
        if present is not None:
            yield from self._leading(present)

    def _leading(self, present: Present) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("penstock_controller_jobs", "Jobs under way by state", labels=["state"])
        counts = Counter(present.jobs.states)
        for state in JobState:
            if not state.is_terminal:
                jobs.add_metric([state], counts[state])
        yield jobs
        capacities = present.registry.capacities
        yield GaugeMetricFamily("penstock_controller_nodes", "Nodes that are registered", value=len(capacities))
        yield GaugeMetricFamily(
            "penstock_controller_slots", "Slots of all nodes", value=sum(capacity.slots for capacity in capacities)
        )
        yield GaugeMetricFamily(
            "penstock_controller_slots_free", "Slots that are free", value=sum(max(c.free, 0) for c in capacities)
        )
        yield GaugeMetricFamily(
            "penstock_controller_journal_entries", "Entries that wait to be written", value=present.journal.waiting
        )
