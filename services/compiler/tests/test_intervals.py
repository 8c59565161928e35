from __future__ import annotations

import pytest

from penstock.compiler.intervals import Interval, parse_interval, spark_interval

SECOND = 1_000_000
DAY = 86_400 * SECOND


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("5 seconds", None, Interval(0, 5 * SECOND)),
        ("5", "MINUTES", Interval(0, 300 * SECOND)),
        ("5", None, Interval(0, 5 * SECOND)),
        ("1 day 02:03:04.5", None, Interval(0, DAY + 7_384_500_000)),
        ("-00:00:01", None, Interval(0, -SECOND)),
        ("1h30m", None, Interval(0, 5400 * SECOND)),
        ("1.5 hours", None, Interval(0, 5400 * SECOND)),
        ("2 mons 1 year", None, Interval(14, 0)),
        ("3 weeks ago", None, Interval(0, -21 * DAY)),
        ("250 ms", None, Interval(0, 250_000)),
        ("1.5 months", None, None),
        ("5 parsecs", None, None),
        ("", None, None),
        ("soon", None, None),
        ("5 seconds and more", None, None),
    ],
)
def test_text_of_an_interval(text: str, unit: str | None, expected: Interval | None) -> None:
    assert parse_interval(text, unit) == expected


@pytest.mark.parametrize(
    ("interval", "sql"),
    [
        (Interval(0, 5 * SECOND), "INTERVAL '0 00:00:05' DAY TO SECOND"),
        (Interval(0, -DAY - 1), "INTERVAL '-1 00:00:00.000001' DAY TO SECOND"),
        (Interval(14, 0), "INTERVAL '14' MONTH"),
        (Interval(1, SECOND), "make_interval(0, 1, 0, 0, 0, 0, 1)"),
    ],
)
def test_interval_in_spark(interval: Interval, sql: str) -> None:
    assert spark_interval(interval) == sql
