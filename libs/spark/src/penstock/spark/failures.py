"""Turns the JVM's report of a failure into an error of the project."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.common.errors import PenstockError
from penstock.spark.errors import (
    MEMORY_HINT,
    DataError,
    EngineFault,
    EngineMemory,
    FragmentRefused,
    Position,
    SqlError,
    UdfError,
)


def error_of(report: dict[str, Any], sql: str) -> PenstockError:
    """The error that `Failure.scala` reported while `sql` was planned or run; it may name another SQL of a fragment."""
    sql = str(report.get("sql", sql))
    message = str(report["message"]) if report["kind"] == "udf" else _first_sentence(str(report["message"]))
    match report["kind"]:
        case "sql":
            return SqlError(message, sql=sql, error_class=report["condition"], position=_position(report, sql))
        case "data":
            return DataError(message, sql=sql, error_class=report["condition"], position=_position(report, sql))
        case "refused":
            return FragmentRefused(message, hint=report["hint"])
        case "udf":
            return UdfError(_without_our_frames(message))
        case "memory":
            return EngineMemory(message, hint=MEMORY_HINT)
        case _:
            return EngineFault(message, trace=str(report.get("trace", "")))


_FRAME: Final = re.compile(r'  File "([^"]*)", line ')


def _without_our_frames(traceback: str) -> str:
    """A traceback without the frames through which a function is called."""
    kept: list[str] = []
    ours = False
    for line in traceback.splitlines():
        if frame := _FRAME.match(line):
            ours = "/penstock/udf/" in frame[1]
        elif not line.startswith(" "):
            ours = False
        if not ours:
            kept.append(line)
    return "\n".join(kept)


def _first_sentence(message: str) -> str:
    """Spark's message without what the error has attributes for, and without its advice about catalogues."""
    return re.sub(r"^\[[A-Z0-9_.]+\] | SQLSTATE: \w{5}.*$", "", message.partition("\n")[0])


def _position(report: dict[str, Any], sql: str) -> Position | None:
    if "line" in report:
        return Position(int(report["line"]), int(report["column"]))
    if "start" not in report:
        return None
    before = sql[: int(report["start"])]
    return Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
