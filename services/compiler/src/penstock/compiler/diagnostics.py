"""Diagnostics while a query is compiled: collected, so that several are reported at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.common.diagnostics import Diagnostic, Severity, Span, has_errors

_MOST: Final = 50


class Refused(Exception):
    """Ends the work on a part of a query: it is wrong, and nothing that depends on it can be said."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class Known(Exception):
    """Ends the work on a part of a query whose fault has been reported already."""


def refusal(code: str, message: str, span: Span | None = None, hint: str | None = None) -> Refused:
    """An error of the user's, to be raised."""
    return Refused(Diagnostic(Severity.ERROR, code, message, hint, span))


class Problems:
    """What has been found in one query."""

    def __init__(self) -> None:
        self._found: list[Diagnostic] = []

    def add(self, diagnostic: Diagnostic) -> None:
        if diagnostic not in self._found and len(self._found) < _MOST:
            self._found.append(diagnostic)

    def error(self, code: str, message: str, span: Span | None = None, hint: str | None = None) -> None:
        self.add(Diagnostic(Severity.ERROR, code, message, hint, span))

    def warning(self, code: str, message: str, span: Span | None = None, hint: str | None = None) -> None:
        self.add(Diagnostic(Severity.WARNING, code, message, hint, span))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Takes in what the block raises; the rest of the block is left out."""
        try:
            yield
        except Refused as refused:
            self.add(refused.diagnostic)
        except Known:
            pass

    @property
    def has_errors(self) -> bool:
        return has_errors(self._found)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All of them, in the order of the text."""
        return tuple(sorted(self._found, key=lambda found: (found.span is None, found.span or Span(0, 0, 0, 0))))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names what is spelled most like a name."""
    names = list(known)
    folded = {candidate.lower(): candidate for candidate in reversed(names)}
    if match := difflib.get_close_matches(name.lower(), folded, n=1):
        return f"did you mean {folded[match[0]]}?"
    return None


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names as a list in a sentence."""
    shown = list(names)
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "")
