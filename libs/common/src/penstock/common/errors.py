"""The errors of the project.

PenstockError
├── UserError                  the user's SQL, settings or data; trying again changes nothing
│   ├── SettingsError          a setting that is unknown, missing or malformed
│   ├── InvalidId              text that is not an id of the kind asked for
│   └── NotFound               what was asked for by its id or name does not exist
├── ExternalError              something Penstock talks to; trying again may help
│   ├── PeerUnavailable        another service could not be reached or did not answer in time
│   ├── NotLeader              the controller that was asked does not lead; another does
│   ├── DatabaseUnavailable    Postgres could not be reached, or went away
│   └── StorageError           object storage refused or could not be reached
│       └── ObjectNotFound     the object is not there; trying again changes nothing
└── InternalError              a fault of Penstock itself
    └── FencedError            a report or a command of a generation that is over; whoever sent it must end

A message is lowercase, has no full stop and never holds a secret; a hint says what to do about it. Libraries add
their own leaves (`penstock.spark.errors` for one) and never a fourth branch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class ErrorDomain(StrEnum):
    """Whose fault an error is."""

    USER = "user"
    EXTERNAL = "external"
    INTERNAL = "internal"


class RetryHint(StrEnum):
    """Whether the same attempt may succeed when it is made again."""

    NEVER = "never"
    BACKOFF = "backoff"


class PenstockError(Exception):
    """The root: every error that the project raises on purpose."""

    domain: ClassVar[ErrorDomain]
    retry: ClassVar[RetryHint] = RetryHint.NEVER

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} (hint: {self.hint})"


class UserError(PenstockError):
    """The user's SQL, settings or data."""

    domain = ErrorDomain.USER


class SettingsError(UserError):
    """A setting that is unknown, missing or malformed."""


class InvalidId(UserError):
    """Text that is not an id of the kind asked for."""


class NotFound(UserError):
    """What was asked for by its id or name does not exist."""


class ExternalError(PenstockError):
    """Something Penstock talks to."""

    domain = ErrorDomain.EXTERNAL
    retry = RetryHint.BACKOFF


class PeerUnavailable(ExternalError):
    """Another service could not be reached, or did not answer in time."""


class NotLeader(ExternalError):
    """The controller that was asked does not lead; `leader` is the address of the one that does, if that is known."""

    def __init__(self, message: str, *, hint: str | None = None, leader: str = "") -> None:
        super().__init__(message, hint=hint)
        self.leader = leader


class DatabaseUnavailable(ExternalError):
    """Postgres could not be reached, or went away."""


class StorageError(ExternalError):
    """Object storage refused, or could not be reached."""


class ObjectNotFound(StorageError):
    """The object is not there."""

    retry = RetryHint.NEVER


class InternalError(PenstockError):
    """A fault of Penstock itself."""

    domain = ErrorDomain.INTERNAL


class FencedError(InternalError):
    """A report of a job's generation, or a command of a generation of leaders, that is over."""
