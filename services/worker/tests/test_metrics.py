from __future__ import annotations

import asyncio
import math

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.common.ids import WorkerId
from penstock.common.program import Edge, NodeKey, Program
from penstock.common.testing import eventually
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE, SourceBatch
from penstock.worker.metrics import LATENCY_BOUNDS_MS, LatencyHistogram, SubtaskMetrics, Waits
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.signals import END_OF_TIME, START_OF_TIME
from penstock.worker.testing import (
    TEST_PACE,
    ListSource,
    MemoryConnector,
    MemoryReporter,
    PartitionedSource,
    PassingEngine,
    assignment,
    node,
    rows,
    sink,
    source,
    value,
)
from penstock.worker.worker import StopMode, Tools, Worker

FORWARD = Edge(NodeKey("a"), NodeKey("b"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_share_of_waiting_is_that_of_the_last_five_seconds() -> None:
    clock = Clock()
    waits = Waits(clock)
    assert waits.share() == 0
    for _ in range(40):  # 10 s, of which a quarter is waited
        clock.now += 0.1875
        with waits.waiting():
            clock.now += 0.0625
    assert waits.share() == pytest.approx(0.25, abs=0.02)
    with waits.waiting():
        clock.now += 2.5
        assert waits.share() == pytest.approx(0.5 + 0.125, abs=0.02)
        clock.now += 60
        assert waits.share() == pytest.approx(1)
    clock.now += 4
    assert waits.share() == pytest.approx(0.2, abs=0.02)
    clock.now += 60
    assert waits.share() == 0


@pytest.mark.parametrize("quantile", [0.5, 0.99, 0.999])
def test_quantiles_of_latency_are_within_five_percent(quantile: float) -> None:
    random = np.random.default_rng(7)
    waited_us = (10 ** random.uniform(2.5, 7, 200_000)).astype(np.int64)
    now = 1_700_000_000_000_000
    latency = LatencyHistogram()
    for part in np.array_split(waited_us, 7):
        latency.observe(pa.record_batch({TIMESTAMP_COLUMN: pa.array(now - part, TIMESTAMP_TYPE)}), now)
    assert latency.quantile_ms(quantile) == pytest.approx(float(np.quantile(waited_us, quantile)) / 1000, rel=0.05)
    assert latency.sum_ms == pytest.approx(waited_us.sum() / 1000, rel=1e-3)


def test_rows_of_the_future_without_a_time_and_of_long_ago_do_no_harm() -> None:
    latency = LatencyHistogram()
    assert math.isnan(latency.quantile_ms(0.5))
    times = pa.array([10_000_000, None, -(10**15)], TIMESTAMP_TYPE)
    latency.observe(pa.record_batch({TIMESTAMP_COLUMN: times}), 0)
    latency.observe(pa.record_batch({"n": [1]}), 0)
    message = latency.to_proto()
    assert len(message.counts) == len(message.bounds_ms) + 1 == len(LATENCY_BOUNDS_MS) + 1
    assert (message.counts[0], message.counts[-1], sum(message.counts)) == (1, 1, 2)


class Kept:
    late_rows = 1
    state_rows = 7
    state_bytes = 112


def test_what_event_time_adds_is_told_to_the_controller() -> None:
    metrics = SubtaskMetrics(NodeKey("a"), 1, lambda: 0, now_us=lambda: 5_000_000)
    message = metrics.to_proto()
    assert (message.watermark_us, message.HasField("watermark_lag_seconds")) == (START_OF_TIME, False)
    metrics.watermark, metrics.state = 1_500_000, Kept()
    metrics.count_late(2)
    message = metrics.to_proto()
    assert (message.watermark_us, message.watermark_lag_seconds, message.late_rows) == (1_500_000, 3.5, 3)
    assert (message.state_rows, message.state_bytes) == (7, 112)
    metrics.watermark = 6_000_000
    assert metrics.watermark_lag_seconds == 0
    metrics.watermark = END_OF_TIME
    assert metrics.watermark_lag_seconds is None


async def test_prometheus_shows_event_time_where_there_is_one() -> None:
    registry = CollectorRegistry()
    collector = SubtaskCollector(registry)
    connector = MemoryConnector({("t", 0): PartitionedSource([[2_000_000, 1_000_000], None])})
    worker = Worker(
        WorkerId.new(), Tools(PassingEngine(), {"memory": connector}, {}, TEST_PACE), lambda _job: MemoryReporter()
    )
    program = Program((node("a", source(), value("observe", observes=True)), node("b", sink())), (FORWARD,))
    job = assignment(program)

    async def shown() -> bool:
        text = generate_latest(registry).decode()
        labels = [f'{{job="{job.job.id}",node="{key}",subtask="0"}}' for key in ("a", "b")]
        return (
            all(f"penstock_subtask_watermark_seconds{one} 2.0" in text for one in labels)
            and all(f"penstock_subtask_watermark_lag_seconds{one}" in text for one in labels)
            and f"penstock_subtask_late_rows_total{labels[0]} 1.0" in text
            and f"penstock_subtask_state_rows{labels[0]} 0.0" in text
        )

    with collector.showing(worker):
        worker.start(job)
        assert "penstock_subtask_watermark_seconds{" not in generate_latest(registry).decode()
        running = asyncio.create_task(worker.run())
        await eventually(shown)
        worker.stop(job.job.id, job.job.generation, StopMode.GRACEFUL)
        await running


async def test_prometheus_shows_each_subtask_while_its_worker_is_there() -> None:
    registry = CollectorRegistry()
    collector = SubtaskCollector(registry)
    connector = MemoryConnector({("t", 0): ListSource([SourceBatch(rows([1, 2, 3]), bad_rows=2)])})
    tools = Tools(PassingEngine(), {"memory": connector}, {}, TEST_PACE)
    worker = Worker(WorkerId.new(), tools, lambda _job: MemoryReporter())
    job = assignment(Program((node("a", source(), sink()),), ()))
    with collector.showing(worker):
        assert b"job=" not in generate_latest(registry)
        worker.start(job)
        await worker.run()
        text = generate_latest(registry).decode()
    labels = f'{{job="{job.job.id}",node="a",subtask="0"}}'
    assert f"penstock_subtask_rows_in_total{labels} 3.0" in text
    assert f"penstock_subtask_bad_rows_total{labels} 2.0" in text
    assert f"penstock_subtask_backpressure{labels}" in text
    assert f"penstock_subtask_latency_seconds_count{labels} 3.0" in text
    assert b"job=" not in generate_latest(registry)
