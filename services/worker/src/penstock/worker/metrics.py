"""What a subtask counts of itself, for the controller and for Prometheus."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.program import NodeKey
from penstock.common.proto import jobs_pb2 as proto
from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.worker.signals import END_OF_TIME, START_OF_TIME

_WINDOW_SECONDS: Final = 5.0
_SAMPLE_SECONDS: Final = 0.25

# Bounds 5 % apart, so that any quantile is known that well: from 0.1 ms to about an hour.
_GROWTH: Final = 1.05
_LEAST_US: Final = 100.0
LATENCY_BOUNDS_MS: Final = tuple(_LEAST_US / 1000 * _GROWTH**index for index in range(357))
_BOUNDS_US: Final = np.floor(np.array(LATENCY_BOUNDS_MS) * 1000).astype(np.int64)


class Waits:
    """The share of the last seconds that was spent waiting for one kind of thing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waited = 0.0
        self._since: float | None = None
        self._samples: deque[tuple[float, float]] = deque([(clock(), 0.0)])  # when, and how much had been waited

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block that waits; one at a time."""
        self._since = self._clock()
        self._sample(self._since)
        try:
            yield
        finally:
            now = self._clock()
            self._waited, self._since = self._total(now), None
            self._sample(now)

    def share(self) -> float:
        """From 0, never waited, to 1, did nothing but wait. Changes nothing, so that any thread may ask."""
        now = self._clock()
        begin = now - _WINDOW_SECONDS
        samples = (*self._samples, (now, self._total(now)))
        before = max((index for index, (at, _) in enumerate(samples) if at <= begin), default=None)
        if before is None:
            start_at, waited = samples[0]
        else:
            (at, total), (next_at, next_total) = samples[before], samples[before + 1]
            start_at, waited = begin, total + (next_total - total) * (begin - at) / (next_at - at)
        return min(1.0, (samples[-1][1] - waited) / (now - start_at)) if now > start_at else 0.0

    def _total(self, now: float) -> float:
        return self._waited + (0.0 if self._since is None else now - self._since)

    def _sample(self, now: float) -> None:
        if now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, self._total(now)))
        while len(self._samples) > 1 and self._samples[1][0] <= now - _WINDOW_SECONDS:
            self._samples.popleft()


class LatencyHistogram:
    """How long rows took from their event time to their write."""

    def __init__(self) -> None:
        self.counts: npt.NDArray[np.int64] = np.zeros(len(LATENCY_BOUNDS_MS) + 1, np.int64)
        self.sum_ms = 0.0

    def observe(self, batch: pa.RecordBatch, now_us: int) -> None:
        """Counts every row of a batch; a row of the future counts as instant."""
        index = batch.schema.get_field_index(TIMESTAMP_COLUMN)
        if index < 0 or not batch.num_rows:
            return
        times = batch.column(index).view(pa.int64()).drop_null().to_numpy(zero_copy_only=False)
        times = np.minimum(times, now_us)
        self.sum_ms += float((now_us - times).sum(dtype=np.float64)) / 1000
        if not (times[:-1] <= times[1:]).all():  # sources give rows in the order of their times, or nearly so
            times = np.sort(times)
        # So many rows are older than each bound; a search for each bound costs less than a logarithm of each row.
        older = np.searchsorted(times, now_us - _BOUNDS_US, side="left")
        self.counts += -np.diff(older, prepend=len(times), append=0)

    def quantile_ms(self, quantile: float) -> float:
        """The latency that so large a share of the rows did not exceed, within 5 %; not a number without rows."""
        total = int(self.counts.sum())
        if not total:
            return math.nan
        bucket = int(np.searchsorted(np.cumsum(self.counts), quantile * total))
        return LATENCY_BOUNDS_MS[min(bucket, len(LATENCY_BOUNDS_MS) - 1)]

    def to_proto(self) -> proto.Latency:
        return proto.Latency(bounds_ms=LATENCY_BOUNDS_MS, counts=self.counts.tolist())


class State(Protocol):
    """Whatever keeps rows, and drops those that come too late."""

    @property
    def late_rows(self) -> int: ...

    @property
    def state_rows(self) -> int: ...

    @property
    def state_bytes(self) -> int: ...


@dataclass(slots=True)
class LookupCounters:
    """What lookup joins count."""

    lookups: int = 0
    """Keys that a table was asked for, each time."""
    cache_hits: int = 0
    """Keys whose answer was known."""
    failures: int = 0
    """Questions that failed, each attempt."""


class SubtaskMetrics:
    """The counters of one subtask, which only grow, and what there is now."""

    def __init__(
        self,
        node: NodeKey,
        subtask: int,
        queued_rows: Callable[[], int],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.node = node
        self.subtask = subtask
        self.rows_in = self.rows_out = 0
        self.bytes_in = self.bytes_out = 0
        self.batches_in = self.batches_out = 0
        self.bad_rows = self._late_rows = 0
        self.watermark = START_OF_TIME
        self.state: State | None = None
        self.backpressure = Waits()
        self.latency: LatencyHistogram | None = None
        self.lookup = LookupCounters()
        self._queued_rows = queued_rows
        self._now_us = now_us

    @property
    def queued_rows(self) -> int:
        """Rows that wait in the input channels."""
        return self._queued_rows()

    @property
    def late_rows(self) -> int:
        """Rows that came too late, and were dropped."""
        return self._late_rows + (0 if self.state is None else self.state.late_rows)

    @property
    def state_rows(self) -> int:
        """Rows that the operators keep."""
        return 0 if self.state is None else self.state.state_rows

    @property
    def state_bytes(self) -> int:
        """How large they are."""
        return 0 if self.state is None else self.state.state_bytes

    @property
    def watermark_lag_seconds(self) -> float | None:
        """How long ago the event time of the watermark was; None without one, and of a stream that has ended."""
        if self.watermark in (START_OF_TIME, END_OF_TIME):
            return None
        return max(0, self._now_us() - self.watermark) / 1e6

    def count_in(self, batch: pa.RecordBatch) -> None:
        self.rows_in += batch.num_rows
        self.bytes_in += batch.nbytes
        self.batches_in += 1

    def count_out(self, batch: pa.RecordBatch) -> None:
        self.rows_out += batch.num_rows
        self.bytes_out += batch.nbytes
        self.batches_out += 1

    def count_late(self, rows: int) -> None:
        self._late_rows += rows

    def to_proto(self) -> proto.SubtaskMetrics:
        return proto.SubtaskMetrics(
            node_id=self.node,
            subtask=self.subtask,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            batches_in=self.batches_in,
            batches_out=self.batches_out,
            bad_rows=self.bad_rows,
            late_rows=self.late_rows,
            backpressure=self.backpressure.share(),
            queued_rows=self.queued_rows,
            watermark_us=self.watermark,
            watermark_lag_seconds=self.watermark_lag_seconds,
            state_rows=self.state_rows,
            state_bytes=self.state_bytes,
            latency=None if self.latency is None else self.latency.to_proto(),
        )
