"""A job's figures: of each subtask, and of each node of its program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from penstock.api.schemas import Counters, JobMetrics, Latency, NodeMetrics, SubtaskMetrics
from penstock.common.ids import JobId
from penstock.common.program import Program
from penstock.common.proto.controller_pb2 import JobMetricsResponse
from penstock.common.proto.jobs_pb2 import Latency as LatencyMessage
from penstock.common.proto.jobs_pb2 import SubtaskMetrics as SubtaskMessage

_NO_WATERMARK = -(2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SUMS = (
    "rows_in",
    "rows_out",
    "bytes_in",
    "bytes_out",
    "batches_in",
    "batches_out",
    "bad_rows",
    "late_rows",
    "dropped_rows",
    "queued_rows",
    "state_rows",
    "state_bytes",
)


def job_metrics(job: JobId, program: Program, response: JobMetricsResponse) -> JobMetrics:
    """The figures of a job, in the order of its program."""
    nodes = []
    for node in program.nodes:
        messages = sorted((one for one in response.subtasks if one.node_id == node.key), key=lambda one: one.subtask)
        nodes.append(
            NodeMetrics(
                node=node.key,
                description=node.description,
                is_source=node.is_source,
                is_sink=node.is_sink,
                subtasks=[SubtaskMetrics(subtask=one.subtask, **dict(_counters([one]))) for one in messages],
                **dict(_counters(messages)),
            )
        )
    return JobMetrics(job_id=job, generation=response.generation, nodes=nodes)


def _counters(messages: Sequence[SubtaskMessage]) -> Counters:
    sums = {name: sum(getattr(message, name) for message in messages) for name in _SUMS}
    watermarks = [message.watermark_us for message in messages]
    lags = [message.watermark_lag_seconds for message in messages if message.HasField("watermark_lag_seconds")]
    return Counters(
        **sums,
        backpressure=max((message.backpressure for message in messages), default=0.0),
        # A node has a watermark once all of its subtasks have one.
        watermark=_instant(min(watermarks, default=_NO_WATERMARK)),
        watermark_lag_seconds=max(lags, default=None),
        latency=_latency(message.latency for message in messages if message.HasField("latency")),
    )


def _instant(microseconds: int) -> datetime | None:
    if microseconds == _NO_WATERMARK:
        return None
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        # Beyond what a date can say: the stream has ended.
        return datetime.max.replace(tzinfo=UTC) if microseconds > 0 else None


def _latency(histograms: Iterable[LatencyMessage]) -> Latency | None:
    total: Latency | None = None
    for histogram in histograms:
        counts = list(histogram.counts)
        if total is not None:
            counts = [a + b for a, b in zip(total.counts, counts, strict=True)]
        total = Latency(bounds_ms=list(histogram.bounds_ms), counts=counts)
    return total
