"""What an engine is to the comparison: how its session is started, and what it is asked for a query."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Protocol

from peers.events import Files
from peers.queries import Query
from sessions import Command


class NotWritten(Exception):
    """A query is not said in an engine's language; the message says why."""


class ResultForm(Enum):
    """How an engine leaves the results of a query that updates."""

    CHANGES = "changes"
    """Debezium's envelopes: rows that are taken back, and rows that come."""
    STEPS = "steps"
    """Rows by the number of a step, `_step`; that of the last step counts for a key."""


class Engine(Protocol):
    """Penstock or a peer."""

    name: str
    """As a column is headed."""
    version: str
    """What exactly it is."""
    form: ResultForm

    def prepare(self) -> Command:
        """Makes the environment if there is none; PeerUnavailable where it cannot be had."""
        ...

    def job(self, query: Query, files: Files, into: Path | None) -> Mapping[str, object]:
        """What the session is asked: a query into files of a folder, or into nothing. NotWritten if it is not said."""
        ...
