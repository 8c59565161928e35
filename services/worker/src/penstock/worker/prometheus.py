"""The subtasks' metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.common.fencing import Fence
from penstock.common.ids import WorkerId
from penstock.worker.metrics import LATENCY_BOUNDS_MS, LatencyHistogram, SubtaskMetrics
from penstock.worker.network.counters import NetworkCounters
from penstock.worker.signals import END_OF_TIME, START_OF_TIME
from penstock.worker.worker import Worker

_LABELS: Final = ("job", "node", "subtask")
_WORKER_LABELS: Final = ("job", "worker")
_EVERY: Final = 8
"""Of the bounds, which are closer than a dashboard needs, every so manieth is shown."""

_COUNTERS: Final[tuple[tuple[str, str, Callable[[SubtaskMetrics], int]], ...]] = (
    ("rows_in", "Rows that came in", lambda metrics: metrics.rows_in),
    ("rows_out", "Rows that went out", lambda metrics: metrics.rows_out),
    ("bytes_in", "Bytes that came in", lambda metrics: metrics.bytes_in),
    ("bytes_out", "Bytes that went out", lambda metrics: metrics.bytes_out),
    ("batches_in", "Batches that came in", lambda metrics: metrics.batches_in),
    ("batches_out", "Batches that went out", lambda metrics: metrics.batches_out),
    ("bad_rows", "Rows that could not be decoded", lambda metrics: metrics.bad_rows),
    ("late_rows", "Rows that came too late and were dropped", lambda metrics: metrics.late_rows),
    ("lookups", "Keys that lookup tables were asked for", lambda metrics: metrics.lookup.lookups),
    ("lookup_cache_hits", "Keys whose answer was still known", lambda metrics: metrics.lookup.cache_hits),
    ("lookup_failures", "Questions to lookup tables that failed", lambda metrics: metrics.lookup.failures),
)
_GAUGES: Final[tuple[tuple[str, str, Callable[[SubtaskMetrics], float | None]], ...]] = (
    ("queued_rows", "Rows that wait in input channels", lambda metrics: metrics.queued_rows),
    ("backpressure", "Share of the last 5 s that was spent waiting", lambda metrics: metrics.backpressure.share()),
    ("watermark_seconds", "Event time of the watermark, since 1970", lambda metrics: _seconds(metrics.watermark)),
    ("watermark_lag_seconds", "How long ago that was", lambda metrics: metrics.watermark_lag_seconds),
    ("state_rows", "Rows that operators keep", lambda metrics: metrics.state_rows),
    ("state_bytes", "Size of the rows that operators keep", lambda metrics: metrics.state_bytes),
)
_NETWORK_COUNTERS: Final[tuple[tuple[str, str, Callable[[NetworkCounters], float]], ...]] = (
    ("bytes_in", "Bytes that came from other workers", lambda counters: counters.bytes_in),
    ("bytes_out", "Bytes that went to other workers", lambda counters: counters.bytes_out),
    ("frames_in", "Frames that came from other workers", lambda counters: counters.frames_in),
    ("frames_out", "Frames that went to other workers", lambda counters: counters.frames_out),
    ("blocked_seconds", "Time that subtasks waited for credit", lambda counters: counters.blocked_seconds),
)


class SubtaskCollector(Collector):
    """Reads the counters of the workers that it was given, when it is asked. One for all workers of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._workers: dict[WorkerId, Worker] = {}
        self._fences: dict[WorkerId, Fence] = {}
        registry.register(self)

    @contextmanager
    def showing(self, worker: Worker, fence: Fence | None = None) -> Iterator[None]:
        """Shows a worker's subtasks during the block, and the commands that it refuses."""
        self._workers[worker.id] = worker
        self._fences[worker.id] = fence or Fence()
        try:
            yield
        finally:
            del self._workers[worker.id]
            del self._fences[worker.id]

    def collect(self) -> Iterator[Metric]:
        executions = [worker.execution for worker in tuple(self._workers.values())]
        labelled = [
            ((execution.assignment.job.id, metrics.node, str(metrics.subtask)), metrics)
            for execution in executions
            if execution is not None
            for metrics in execution.metrics
        ]
        for name, text, read in _COUNTERS:
            counter = CounterMetricFamily(f"penstock_subtask_{name}", text, labels=_LABELS)
            for labels, metrics in labelled:
                counter.add_metric(labels, read(metrics))
            yield counter
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(f"penstock_subtask_{name}", text, labels=_LABELS)
            for labels, metrics in labelled:
                if (found := value(metrics)) is not None:
                    gauge.add_metric(labels, found)
            yield gauge
        yield _latency(labelled)
        refused = sum(fence.refused for fence in tuple(self._fences.values()))
        yield GaugeMetricFamily("penstock_worker_commands_refused", "Commands of deposed controllers", value=refused)
        yield from self._network()

    def _network(self) -> Iterator[Metric]:
        found = [
            ((execution.assignment.job.id, id), execution.network)
            for id, worker in tuple(self._workers.items())
            if (execution := worker.execution) is not None
        ]
        for name, text, read in _NETWORK_COUNTERS:
            counter = CounterMetricFamily(f"penstock_network_{name}", text, labels=_WORKER_LABELS)
            for labels, counters in found:
                if counters is not None:
                    counter.add_metric(labels, read(counters))
            yield counter


def _seconds(watermark: int) -> float | None:
    return None if watermark in (START_OF_TIME, END_OF_TIME) else watermark / 1e6


def _latency(labelled: Sequence[tuple[tuple[str, ...], SubtaskMetrics]]) -> Metric:
    latency = HistogramMetricFamily(
        "penstock_subtask_latency_seconds", "From a row's event time to its write", labels=_LABELS
    )
    for labels, metrics in labelled:
        if metrics.latency is not None:
            latency.add_metric(labels, _buckets(metrics.latency), metrics.latency.sum_ms / 1000)
    return latency


def _buckets(latency: LatencyHistogram) -> list[tuple[str, float]]:
    below = latency.counts.cumsum()
    shown = [
        (f"{LATENCY_BOUNDS_MS[index] / 1000:.6g}", float(below[index]))
        for index in range(0, len(LATENCY_BOUNDS_MS), _EVERY)
    ]
    return [*shown, ("+Inf", float(below[-1]))]
