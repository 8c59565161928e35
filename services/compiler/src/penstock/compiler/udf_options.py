"""How a Python function is called: what its source's block and CREATE FUNCTION say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from penstock.common.quantities import parse_duration
from penstock.common.udfs import Shape
from penstock.compiler.diagnostics import did_you_mean, listed

_MOST_IN_FLIGHT: Final = 100_000
_MOST_RETRIES: Final = 100


class WrongOption(Exception):
    """An option that there is not, or that is not possible."""

    def __init__(self, name: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class CallOptions:
    """`kind` is there where the user says it; the others are for async functions."""

    kind: Shape | None = None
    ordered: bool = True
    in_flight: int = 100
    timeout: timedelta = timedelta(seconds=10)
    retries: int = 0
    on_error: str = "fail"


def _kind(text: str) -> Shape:
    if text not in set(Shape):
        raise ValueError(f"the kinds are {listed(Shape)}")
    return Shape(text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return text.lower() == "true"


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text[:9]) <= most:
            raise ValueError(f"it is a number from {least:,} to {most:,}")
        return int(text)

    return read


def _timeout(text: str) -> timedelta:
    duration = parse_duration(text)
    if duration <= timedelta(0):
        raise ValueError("it must be longer than nothing")
    return duration


def _policy(text: str) -> str:
    if text != "fail":
        raise ValueError("a function that fails fails the job; that is all there is today")
    return text


_READERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "kind": _kind,
        "ordered": _truth,
        "in_flight": _number(1, _MOST_IN_FLIGHT),
        "timeout": _timeout,
        "retries": _number(0, _MOST_RETRIES),
        "on_error": _policy,
    }
)


def read_options(options: Mapping[str, str]) -> CallOptions:
    """What options say; raises WrongOption."""
    found: dict[str, Any] = {}
    for name, text in options.items():
        if name not in _READERS:
            hint = did_you_mean(name, _READERS) or f"the options are {listed(_READERS)}"
            raise WrongOption(name, f"a function has no option {name}", hint)
        try:
            found[name] = _READERS[name](text)
        except ValueError as error:
            raise WrongOption(name, f"option {name}: {text!r} is not possible", str(error)) from None
    return CallOptions(**found)


def check_options(options: Mapping[str, str], shape: Shape) -> None:
    """Refuses options of async functions for others."""
    for name in options:
        if name not in ("kind", "on_error") and shape is not Shape.ASYNC:
            raise WrongOption(name, f"option {name} is for async functions, and this one is not", "write async def")
