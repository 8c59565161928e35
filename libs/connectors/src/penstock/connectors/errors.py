"""The errors of connectors.

UserError
├── UnknownConnector        a connector that there is none of
├── OptionError             options that a connector does not take, or does not take so
├── UnsupportedType         a column that a format cannot hold
└── BadRow                  a row that cannot be decoded, under bad_data = 'fail'
ExternalError
├── FileError               a file that cannot be read or written; trying again changes nothing
└── LookupFailed            a lookup table that does not answer

A message holds at most the beginning of what it is about: a payload of 10 MB is never in it whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.errors import ExternalError, RetryHint, UserError


@dataclass(frozen=True, slots=True)
class OptionProblem:
    """What is wrong with one option; `option` is None when the options do not go together."""

    option: str | None
    message: str
    hint: str | None = None


class UnknownConnector(UserError):
    """A connector that there is none of."""

    def __init__(self, connector: str, *, hint: str) -> None:
        super().__init__(f"there is no connector {shorten(connector)!r}", hint=hint)
        self.connector = connector


class OptionError(UserError):
    """Options that a connector does not take, or does not take so: every problem there is."""

    def __init__(self, connector: str, problems: tuple[OptionProblem, ...]) -> None:
        hints = [problem.hint for problem in problems if problem.hint is not None]
        super().__init__("; ".join(problem.message for problem in problems), hint="; ".join(hints) or None)
        self.connector = connector
        self.problems = problems
        self.option = problems[0].option


class UnsupportedType(UserError):
    """A column that a format cannot hold."""


class BadRow(UserError):
    """A row that cannot be decoded, where the table says that this fails its job."""

    def __init__(self, table: str, position: str, reason: str) -> None:
        super().__init__(
            f"{table}: bad row at {position}: {reason}",
            hint="bad_data = 'drop' or 'dead_letter' lets the job go on without such rows",
        )
        self.table = table
        self.position = position
        self.reason = reason


class FileError(ExternalError):
    """A file that cannot be read or written."""

    retry = RetryHint.NEVER

    def __init__(self, path: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}", hint=hint)
        self.path = path


class LookupFailed(ExternalError):
    """A lookup table that does not answer, however often it is asked."""

    def __init__(self, table: str, reason: str, attempts: int, *, retry: RetryHint) -> None:
        tried = "" if attempts == 1 else f" {attempts} times"
        super().__init__(f"looking up rows of {table} failed{tried}: {reason}")
        self.table = table
        self.attempts = attempts
        self.retry = retry  # type: ignore[misc]


def shorten(text: str, limit: int = 60) -> str:
    """The beginning of a text, for a message."""
    return text if len(text) <= limit else f"{text[:limit]}…"
