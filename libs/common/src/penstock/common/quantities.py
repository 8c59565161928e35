"""Durations and sizes as people write them: `500ms`, `1.5h`, `64MiB`, `10MB`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]*)", re.IGNORECASE | re.ASCII)

_MICROSECONDS: Mapping[str, int] = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}

_LETTERS = "KMGT"
_BINARY = {f"{letter}iB": 1024**power for power, letter in enumerate(_LETTERS, start=1)}
_DECIMAL = {f"{letter}B": 1000**power for power, letter in enumerate(_LETTERS, start=1)}
_SHORT = {letter: 1024**power for power, letter in enumerate(_LETTERS, start=1)}
_BYTES: Mapping[str, int] = {
    unit.lower(): factor for unit, factor in {"": 1, "B": 1, **_SHORT, **_BINARY, **_DECIMAL}.items()
}


def parse_duration(value: object) -> timedelta:
    """A duration from text such as `10s`, or 0; raises ValueError."""
    match value:
        case timedelta():
            duration = value
        case str():
            duration = _duration_of_text(value)
        case int() | float() if value == 0 and not isinstance(value, bool):
            duration = timedelta(0)
        case _:
            raise ValueError(f"{value!r} is not a duration; write it with a unit, such as '10s'")
    if duration < timedelta(0):
        raise ValueError(f"a duration cannot be negative: {value}")
    return duration


def _duration_of_text(text: str) -> timedelta:
    number, unit = _split(text, "duration", "10s")
    if unit == "" and number == 0:
        return timedelta(0)
    if unit not in _MICROSECONDS:
        what = f"has an unknown unit {unit!r}" if unit else "has no unit"
        raise ValueError(f"the duration {text!r} {what}; the units are {', '.join(_MICROSECONDS)}")
    try:
        return timedelta(microseconds=round(number * _MICROSECONDS[unit]))
    except OverflowError:
        raise ValueError(f"the duration {text!r} is too long") from None


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back to the same duration."""
    microseconds = duration // timedelta(microseconds=1)
    for unit, factor in reversed(list(_MICROSECONDS.items())):
        if microseconds and microseconds % factor == 0:
            return f"{microseconds // factor}{unit}"
    return f"{Decimal(microseconds) / 1000}ms" if microseconds else "0s"


def parse_size(value: object) -> int:
    """A number of bytes from text such as `64MiB`, or a plain integer; raises ValueError."""
    match value:
        case bool():
            raise ValueError(f"{value!r} is not a size; write it as '64MiB'")
        case int():
            size = value
        case str():
            size = _size_of_text(value)
        case _:
            raise ValueError(f"{value!r} is not a size; write it as '64MiB'")
    if size < 0:
        raise ValueError(f"a size cannot be negative: {value}")
    return size


def _size_of_text(text: str) -> int:
    number, unit = _split(text, "size", "64MiB")
    if unit not in _BYTES:
        units = ", ".join(["k", "m", "g", "t", *_BINARY, *_DECIMAL])
        raise ValueError(f"the size {text!r} has an unknown unit {unit!r}; the units are {units}")
    return round(number * _BYTES[unit])


def format_size(size: int) -> str:
    """The text with the smallest number that `parse_size` reads back to the same size."""
    units: Mapping[str, int] = {"B": 1, **_BINARY, **_DECIMAL}
    exact = [(size // factor, unit) for unit, factor in units.items() if size and size % factor == 0]
    number, unit = min(exact, key=lambda pair: pair[0], default=(0, "B"))
    return f"{number}{unit}"


def _split(text: str, what: str, example: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a {what}; write it as {example!r}")
    return Decimal(match["number"]), match["unit"].lower()


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str)]
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size, return_type=str)]
