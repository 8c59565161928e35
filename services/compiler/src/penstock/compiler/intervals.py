"""Intervals as Postgres writes them: '5 seconds', '1 day 02:30:00', '1h', '2 mons'."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

_MICROSECONDS: Final = MappingProxyType(
    {
        "microsecond": 1,
        "millisecond": 1_000,
        "second": 1_000_000,
        "minute": 60_000_000,
        "hour": 3_600_000_000,
        "day": 86_400_000_000,
        "week": 7 * 86_400_000_000,
    }
)
_MONTHS: Final = MappingProxyType({"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200})
_ABBREVIATIONS: Final = MappingProxyType(
    {
        "us": "microsecond",
        "usec": "microsecond",
        "ms": "millisecond",
        "msec": "millisecond",
        "s": "second",
        "sec": "second",
        "m": "minute",
        "min": "minute",
        "h": "hour",
        "hr": "hour",
        "d": "day",
        "w": "week",
        "mon": "month",
        "y": "year",
        "yr": "year",
        "centurie": "century",
    }
)
_PART: Final = re.compile(
    r"\s*(?:(?P<sign>[+-])?(?P<hours>\d+):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,6})?))?"
    r"|(?P<amount>[+-]?(?:\d+\.?\d*|\.\d+))\s*(?P<unit>[a-zA-Z]+)?)\s*,?"
)
UNITS: Final = frozenset({*_MICROSECONDS, *_MONTHS})


@dataclass(frozen=True, slots=True)
class Interval:
    """A length of time: months, whose length varies, and microseconds."""

    months: int
    microseconds: int

    @property
    def milliseconds(self) -> int:
        """The length in milliseconds, of an interval without months."""
        return self.microseconds // 1000


def unit_of(name: str) -> str | None:
    """The unit that a word or its abbreviation or plural is."""
    word = name.lower()
    for candidate in (word, word.removesuffix("s")):
        unit = _ABBREVIATIONS.get(candidate, candidate)
        if unit in UNITS:
            return unit
    return None


def parse_interval(text: str, unit: str | None = None) -> Interval | None:
    """The interval of a text, in which a bare number is of `unit`; None when it is none."""
    months, microseconds, position = 0, 0, 0
    body = text.strip()
    ago = body.lower().endswith(" ago")
    body = body[:-4] if ago else body
    if not body:
        return None
    while position < len(body):
        part = _PART.match(body, position)
        if part is None or part.end() == position:
            return None
        position = part.end()
        length = _clock(part) if part["hours"] else _amount(part, unit)
        if length is None:
            return None
        months, microseconds = months + length.months, microseconds + length.microseconds
    return Interval(-months, -microseconds) if ago else Interval(months, microseconds)


def _clock(part: re.Match[str]) -> Interval:
    seconds = int(part["hours"]) * 3600 + int(part["minutes"]) * 60 + Decimal(part["seconds"] or 0)
    return Interval(0, int(seconds * 1_000_000) * (-1 if part["sign"] == "-" else 1))


def _amount(part: re.Match[str], default: str | None) -> Interval | None:
    unit = unit_of(part["unit"] or default or "second")
    if unit is None:
        return None
    amount = Decimal(part["amount"])
    if unit in _MONTHS:
        months = amount * _MONTHS[unit]
        return Interval(int(months), 0) if months == int(months) else None
    return Interval(0, int(amount * _MICROSECONDS[unit]))


def spark_interval(interval: Interval) -> str:
    """The interval as a literal or a call of Spark's."""
    if interval.months and interval.microseconds:
        seconds = Decimal(interval.microseconds) / 1_000_000
        return f"make_interval(0, {interval.months}, 0, 0, 0, 0, {seconds:f})"
    if interval.months:
        return f"INTERVAL '{interval.months}' MONTH"
    sign = "-" if interval.microseconds < 0 else ""
    whole, fraction = divmod(abs(interval.microseconds), 1_000_000)
    days, second = divmod(whole, 86_400)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"INTERVAL '{sign}{days} {clock}{f'.{fraction:06}' if fraction else ''}' DAY TO SECOND"
