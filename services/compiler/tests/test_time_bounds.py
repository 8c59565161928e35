from __future__ import annotations

import pytest
from sqlglot import parse_one

from penstock.common.program import JoinKind
from penstock.compiler.joins import conjuncts
from penstock.compiler.time_bounds import TimeBounds, time_bounds

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("condition", "earliest", "latest"),
    [
        ("a BETWEEN b - INTERVAL '5 seconds' AND b + INTERVAL '1 minute'", -5, 60),
        ("b BETWEEN a AND a + INTERVAL '10 seconds'", -10, 0),
        ("a >= b AND a < b + INTERVAL '10 seconds'", 0, 10),
        ("a + INTERVAL '1 second' > b AND b > a - INTERVAL '2 seconds' AND a < b + INTERVAL '1 second'", -1, 1),
        ("(a - INTERVAL '3 seconds') <= b AND a >= (b + INTERVAL '1 second')", 1, 3),
    ],
)
def test_bounds_are_those_of_the_conditions(condition: str, earliest: int, latest: int) -> None:
    found = time_bounds(conjuncts(parse_one(condition)), {"a": 0}, {"b": 0})
    assert found == TimeBounds(earliest * SECOND, latest * SECOND)


@pytest.mark.parametrize(
    "condition",
    [
        "a >= b",
        "a BETWEEN b AND c",
        "a BETWEEN b - INTERVAL '1 month' AND b",
        "a BETWEEN c - INTERVAL '1 second' AND c + INTERVAL '1 second'",
        "a = b",
        "a > b OR a < b + INTERVAL '1 second'",
    ],
)
def test_conditions_without_both_bounds_bound_nothing(condition: str) -> None:
    assert time_bounds(conjuncts(parse_one(condition)), {"a": 0}, {"b": 0}) is None


def test_bounds_are_of_event_times_where_a_column_is_a_little_after_them() -> None:
    condition = parse_one("a BETWEEN b - INTERVAL '10 seconds' AND b")
    assert time_bounds(conjuncts(condition), {"a": 0}, {"b": 1}) == TimeBounds(1 - 10 * SECOND, 1)


def test_rows_that_others_were_given_with_are_kept_as_long_as_these() -> None:
    bounds = TimeBounds(-5 * SECOND, 10 * SECOND)
    assert bounds.retention_us(JoinKind.INNER) == (5 * SECOND, 10 * SECOND)
    assert bounds.retention_us(JoinKind.LEFT) == (5 * SECOND, 15 * SECOND)
    assert bounds.retention_us(JoinKind.RIGHT) == (15 * SECOND, 10 * SECOND)
    assert bounds.retention_us(JoinKind.FULL) == (0, 0)
