"""What can go wrong in an engine.

UserError
├── QueryError          Spark's own word on a query, with its error class and its place in the SQL
│   ├── SqlError        the SQL cannot be parsed or analysed
│   └── DataError       a row made the query fail (a bad cast, a division by zero)
├── FragmentRefused     the plan needs more than a fragment has (an exchange, a broadcast, a subquery), or an input's
│                       type has no counterpart in Spark
├── UdfError            a user's Python function raised
└── SparkUnsupported    the Java or the pyspark found cannot run the engine
InternalError
├── EngineLost          the JVM is gone or could not be started; a new engine may do better
├── FragmentClosed      the fragment was closed before or while it ran
├── EngineMemory        a run needed more memory than the engine has
└── EngineFault         Spark or the bridge failed in a way that is nobody's query
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.common.errors import InternalError, RetryHint, UserError


@dataclass(frozen=True, slots=True)
class Position:
    """A place in SQL text; both count from 1."""

    line: int
    column: int


class QueryError(UserError):
    """Spark's own word on a query: its error class, and the place in the SQL where it knows one."""

    def __init__(self, message: str, *, sql: str, error_class: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.sql = sql
        self.error_class = error_class
        self.position = position


class SqlError(QueryError):
    """Spark cannot parse or analyse the SQL."""


class DataError(QueryError):
    """A row made the query fail."""


class FragmentRefused(UserError):
    """The query is valid SQL, but not something that can be run batch by batch."""


class UdfError(UserError):
    """A user's Python function raised; the message ends in its traceback."""


class SparkUnsupported(UserError):
    """The Java or the pyspark found cannot run the engine."""


class EngineLost(InternalError):
    """The JVM is gone, or could not be started."""

    retry = RetryHint.BACKOFF


class FragmentClosed(InternalError):
    """The fragment was closed before or while it ran."""


MEMORY_HINT: Final = "raise spark.heap or spark.off_heap, or make batches smaller"


class EngineMemory(InternalError):
    """A run needed more memory than the engine has."""

    retry = RetryHint.BACKOFF


class EngineFault(InternalError):
    """Spark or the bridge failed; `trace` is the JVM's stack."""

    def __init__(self, message: str, *, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace
