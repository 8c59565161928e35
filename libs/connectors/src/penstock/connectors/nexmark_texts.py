"""The texts of Nexmark's events: pools of a fixed size, the same in every process, made when first used."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Final

import pyarrow as pa

_FIRST_NAMES: Final = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES: Final = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES: Final = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_STATES: Final = ["AZ", "CA", "ID", "OR", "WA", "WY"]
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000
_POOL: Final = 4096


def _text(source: random.Random, most: int, special: str = " ") -> str:
    """The standard's random text: 3 letters or more, about one in 13 of them the special one."""
    length = source.randrange(3, most)
    letters = (special if source.randrange(13) == 0 else chr(97 + source.randrange(26)) for _ in range(length))
    return "".join(letters).strip()


def _pool(name: str, make: Callable[[random.Random], str], count: int = _POOL) -> pa.Array:
    source = random.Random(name)
    return pa.array([make(source) for _ in range(count)])


@cache
def texts(name: str, most: int) -> pa.Array:
    return _pool(name, lambda source: _text(source, most))


@cache
def extras(name: str, average: int) -> pa.Array:
    """What fills a row up to the size that the standard has for it, a fifth more or less."""
    spread = round(average * 0.2)

    def make(source: random.Random) -> str:
        length = average - spread + source.randrange(2 * spread)
        return "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=length))

    return _pool(name, make, count=1024)


@cache
def cities() -> pa.Array:
    return pa.array(_CITIES)


@cache
def states() -> pa.Array:
    return pa.array(_STATES)


@cache
def names() -> pa.Array:
    return pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])


@cache
def emails() -> pa.Array:
    return _pool("email", lambda source: f"{_text(source, 7)}@{_text(source, 5)}.com")


@cache
def cards() -> pa.Array:
    return _pool("card", lambda source: " ".join(f"{source.randrange(10_000):04d}" for _ in range(4)))


@cache
def channels() -> tuple[pa.Array, pa.Array]:
    """Names and addresses of the channels, the hot ones last."""
    source = random.Random("channel")

    def address() -> str:
        return f"https://www.nexmark.com/{'/'.join(_text(source, 5, '_') for _ in range(3))}/item.htm?query=1"

    labels = [*(f"channel-{i}" for i in range(CHANNELS)), *HOT_CHANNELS]
    tails = [f"&channel_id={_reversed_bits(i)}" if source.randrange(10) > 0 else "" for i in range(CHANNELS)]
    return pa.array(labels), pa.array([*(address() + tail for tail in tails), *(address() for _ in HOT_CHANNELS)])


def _reversed_bits(value: int) -> int:
    """The absolute value of a number whose 32 bits are turned round, as the standard has it."""
    turned = int(f"{value:032b}"[::-1], 2)
    return abs(turned - (1 << 32) if turned >> 31 else turned)
