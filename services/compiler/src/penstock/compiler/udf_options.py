"""How a Python function is called: what its source's block and CREATE FUNCTION say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from penstock.common.quantities import parse_duration
from penstock.common.udfs import Shape, Signature, Style
from penstock.compiler.diagnostics import did_you_mean, listed

_MOST_IN_FLIGHT: Final = 100_000
_MOST_RETRIES: Final = 100
_FAIL: Final = "fail"
_DEAD_LETTER: Final = "dead_letter"


class WrongOption(Exception):
    """An option that there is not, or that is not possible."""

    def __init__(self, name: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class CallOptions:
    """`kind` is there where the user says it. `dead_letter` is the table for rows for which the function fails; without
    one the job does. The others are for async functions."""

    kind: Shape | None = None
    ordered: bool = True
    in_flight: int = 100
    timeout: timedelta = timedelta(seconds=10)
    retries: int = 0
    on_error: str = _FAIL
    dead_letter: str | None = None


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
    if text not in (_FAIL, _DEAD_LETTER):
        raise ValueError(f"it is {_FAIL} or {_DEAD_LETTER}")
    return text


_READERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "kind": _kind,
        "ordered": _truth,
        "in_flight": _number(1, _MOST_IN_FLIGHT),
        "timeout": _timeout,
        "retries": _number(0, _MOST_RETRIES),
        "on_error": _policy,
        "dead_letter": str,
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
    calls = CallOptions(**found)
    if (calls.on_error == _DEAD_LETTER) != (calls.dead_letter is not None):
        hint = "write on_error = 'dead_letter', dead_letter = 'name of a sink table'"
        name = "on_error" if "on_error" in options else _DEAD_LETTER
        raise WrongOption(name, "on_error = 'dead_letter' and dead_letter = '…' go together", hint)
    return calls


def check_options(options: Mapping[str, str], signature: Signature) -> None:
    """Refuses options that are for other functions."""
    shape, is_plain = signature.shape, signature.style is Style.PLAIN
    if _DEAD_LETTER in options and (shape not in (Shape.SCALAR, Shape.ASYNC) or not is_plain):
        raise WrongOption(_DEAD_LETTER, "option dead_letter is for functions that give one value for one row")
    for name in options:
        if name not in ("kind", "on_error", _DEAD_LETTER) and shape is not Shape.ASYNC:
            raise WrongOption(name, f"option {name} is for async functions, and this one is not", "write async def")
