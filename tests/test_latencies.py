"""Latency beside peers: what is computed of arrivals that are given here, and what a feeder sends."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from latencies import Arrivals, WrongAnswers, quantiles, row_latencies_ms, window_latencies_ms
from peers.latency.cases import CASES
from peers.latency.feeder import feeder
from peers.latency.report import table

SECOND = 1_000_000


def arrivals(*rows: tuple[int, int, int]) -> Arrivals:
    return Arrivals(*np.array(rows, np.int64).reshape(-1, 3).T)


def windows(ends: Sequence[int], events: int = 6) -> Arrivals:
    """Two rows of each window: 10 and 20 ms after the watermark has passed its end."""
    return arrivals(*((end, end + SECOND + late, events // 2) for end in ends for late in (20_000, 10_000)))


def test_a_row_s_latency_is_from_when_it_was_due_and_the_first_ones_do_not_count() -> None:
    found = row_latencies_ms(arrivals((0, 900, 1), (SECOND, SECOND + 2500, 1)), events=2, lead_us=SECOND)

    assert found.tolist() == [2.5]


def test_rows_that_are_too_few_are_another_answer() -> None:
    with pytest.raises(WrongAnswers, match="1 rows came instead of 2"):
        row_latencies_ms(arrivals((0, 900, 1)), events=2, lead_us=0)


def test_a_window_s_latency_is_that_of_its_last_row_from_when_the_watermark_passed() -> None:
    ends = [number * SECOND for number in range(1, 9)]

    found = window_latencies_ms(windows(ends), SECOND, events=6, lead_us=2 * SECOND)

    assert found.tolist() == [20.0] * 3, (
        "those that end at 4, 5 and 6 s: what is before is the lead, what is after may be due to the end"
    )


def test_windows_of_other_events_or_missing_ones_are_another_answer() -> None:
    ends = [number * SECOND for number in range(1, 9)]

    with pytest.raises(WrongAnswers, match="do not have 7 events"):
        window_latencies_ms(windows(ends), SECOND, events=7, lead_us=0)
    with pytest.raises(WrongAnswers, match="missing"):
        window_latencies_ms(windows([*ends[:3], *ends[4:]]), SECOND, events=6, lead_us=0)
    with pytest.raises(WrongAnswers, match="only 0 windows"):
        window_latencies_ms(arrivals(), SECOND, events=6, lead_us=0)


def test_quantiles_are_latencies_that_were_measured() -> None:
    assert quantiles(np.arange(1000.0)) == {"p50_ms": 500.0, "p99_ms": 990.0, "p99.9_ms": 999.0}


def test_arrivals_are_read_as_they_were_written(tmp_path: Path) -> None:
    arrivals((1, 2, 3), (4, 5, 6)).write(tmp_path / "arrivals")

    found = Arrivals.read(tmp_path / "arrivals")

    assert (found.due_us.tolist(), found.at_us.tolist(), found.events.tolist()) == ([1, 4], [2, 5], [3, 6])


def test_a_case_of_both_kinds_is_there_at_both_rates() -> None:
    assert [case.name for case in CASES] == [
        "filter@1000",
        "filter@10000",
        "tumble1000@1000",
        "tumble1000@10000",
        "tumble100@1000",
        "tumble100@10000",
    ]


def test_a_table_has_every_figure_and_every_reason() -> None:
    place = {"query": "filter", "events_s": 1000}
    figures = {"samples": 5400, "p50_ms": 1.5, "p99_ms": 7.25, "p99.9_ms": 1300.0}

    lines = table(
        [{**place, "engine": "flink", **figures}, {**place, "engine": "spark", "not_run": "why"}]
    ).splitlines()

    assert lines[0].split() == ["query", "events/s", "engine", "samples", "p50", "ms", "p99", "ms", "p99.9", "ms"]
    assert lines[1].split() == ["filter", "1,000", "flink", "5,400", "1.50", "7.25", "1,300.00"]
    assert lines[2].endswith("spark  not run: why")


def test_a_feeder_sends_all_events_and_none_before_it_is_due() -> None:
    with feeder(rate=1000, count=50) as port, socket.create_connection(("127.0.0.1", port)) as reader:
        events: list[tuple[int, int]] = []
        with reader.makefile() as lines:
            for line in lines:
                due_us, number = map(int, line.split(","))
                assert due_us <= time.time_ns() // 1000
                events.append((due_us, number))

    first_us = events[0][0]
    assert events == [(first_us + number * 1000, number) for number in range(50)]
