from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.quantities import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("10s", timedelta(seconds=10)),
        ("5m", timedelta(minutes=5)),
        ("1.5h", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        (" 10 S ", timedelta(seconds=10)),
        ("0", timedelta(0)),
        (0, timedelta(0)),
        (timedelta(seconds=3), timedelta(seconds=3)),
    ],
)
def test_a_duration_is_read_with_its_unit(text: object, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("10", "has no unit; the units are ms, s, m, h, d"),
        ("10w", "unknown unit 'w'"),
        ("", "is not a duration"),
        ("-5s", "is not a duration"),
        ("1e3s", "is not a duration"),
        ("1h30m", "is not a duration"),
        (10, "write it with a unit"),
        (1.5, "write it with a unit"),
        (False, "is not a duration"),
        (None, "is not a duration"),
        ("999999999999d", "too long"),
        (timedelta(seconds=-1), "cannot be negative"),
    ],
)
def test_what_is_not_a_duration_is_refused_with_a_reason(value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_duration(value)


@given(st.timedeltas(min_value=timedelta(0)))
def test_a_formatted_duration_reads_back_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "90m"),
        (timedelta(days=2), "2d"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(microseconds=500), "0.5ms"),
    ],
)
def test_a_duration_is_formatted_in_its_largest_exact_unit(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 * 1024**2),
        ("1GiB", 1024**3),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("512k", 512 * 1024),
        ("512K", 512 * 1024),
        ("2t", 2 * 1024**4),
        ("10MB", 10_000_000),
        ("1kb", 1_000),
        ("7B", 7),
        ("4096", 4096),
        (4096, 4096),
        (0, 0),
    ],
)
def test_a_size_is_read_in_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("10XB", "unknown unit 'xb'; the units are k, m, g, t, KiB"),
        ("", "is not a size"),
        ("-1k", "is not a size"),
        (-1, "cannot be negative"),
        (1.5, "is not a size"),
        (True, "is not a size"),
    ],
)
def test_what_is_not_a_size_is_refused_with_a_reason(value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_size(value)


@given(st.integers(0, 2**60))
def test_a_formatted_size_reads_back_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (1024**3, "1GiB"), (10_000_000, "10MB"), (1536 * 1024, "1536KiB"), (1001, "1001B")],
)
def test_a_size_is_formatted_in_the_unit_of_the_smallest_number(size: int, text: str) -> None:
    assert format_size(size) == text
