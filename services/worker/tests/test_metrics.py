from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.common.ids import WorkerId
from penstock.common.program import Program
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE, SourceBatch
from penstock.worker.metrics import LATENCY_BOUNDS_MS, LatencyHistogram, Waits
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.testing import (
    TEST_PACE,
    ListSource,
    MemoryConnector,
    MemoryReporter,
    PassingEngine,
    assignment,
    node,
    rows,
    sink,
    source,
)
from penstock.worker.worker import Tools, Worker


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
