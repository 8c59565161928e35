"""Figures of a comparison, and what follows from them: ratios, their geometric means, and whether they got worse.

All of it is pure, and all of it is plain JSON: what is printed, written, drawn and compared with an earlier run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peers.measuring import Measured, NotRun

OURS: Final = "penstock"
MEASURES: Final[Mapping[str, str]] = {
    "steady": "events a second, after runs that warm",
    "cold": "events a second, the first run of a process",
    "cpu": "CPU seconds a million events",
    "memory": "the most memory",
}
_FIELDS: Final = {"steady": "steady_rate", "cold": "cold_rate", "cpu": "cpu_per_million", "memory": "peak_MB"}
_MORE_IS_BETTER: Final = frozenset({"steady", "cold"})

Row = Mapping[str, Any]
Found = dict[tuple[str, str], Measured | NotRun]
"""By the names of query and engine."""


def rows_of(queries: Iterable[str], engines: Sequence[str], found: Found) -> list[Row]:
    """A line for each query and engine, in that order."""
    return [_row(query, engine, found) for query in queries for engine in engines]


def _row(query: str, engine: str, found: Found) -> Row:
    one, ours = found[query, engine], found.get((query, OURS))
    if isinstance(one, Measured) and isinstance(ours, Measured):
        return figures(query, engine, one, one.answers == ours.answers)
    return figures(query, engine, one, None)


def figures(query: str, engine: str, found: Measured | NotRun, agrees: bool | None) -> Row:
    """One line: a query on an engine. `agrees`: with the answers of Penstock; None where there are none."""
    if isinstance(found, NotRun):
        return {"query": query, "engine": engine, "not_run": found.reason}
    return {
        "query": query,
        "engine": engine,
        "steady_rate": found.steady_rate,
        "cold_rate": found.cold_rate,
        "cpu_per_million": found.cpu_per_million,
        "peak_MB": found.peak_bytes / 1e6,
        "answers": found.answers.rows,
        "agrees": agrees,
        "rounds_s": [round(seconds, 3) for seconds in found.steady_seconds],
    }


class NotAlike(Exception):
    """Two comparisons that cannot stand in one table."""


_ALIKE: Final = ("machine", "events", "rounds", "versions")


def with_again(before: Mapping[str, Any], result: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """What was found before, with the lines of the queries that were compared again, by all engines, since then."""
    if unlike := [name for name in _ALIKE if before[name] != result[name]]:
        raise NotAlike(f"before, {' and '.join(unlike)} were others")
    queries = list(dict.fromkeys(row["query"] for row in result["rows"]))
    rows = [*(row for row in before["rows"] if row["query"] not in queries), *result["rows"]]
    again = f"{', '.join(queries)} on {result['date']}, load {result['load']}"
    return {
        **before,
        "again": [*before.get("again", ()), again],
        "rows": sorted(rows, key=lambda row: order.index(row["query"])),
    }


def ratios(rows: Sequence[Row], measure: str) -> dict[str, dict[str, float]]:
    """How many times better Penstock is, by peer and query; only where both have run and their answers agree."""
    field = _FIELDS[measure]
    ours = {row["query"]: row[field] for row in rows if row["engine"] == OURS and field in row}
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["engine"] == OURS or field not in row or row["query"] not in ours or row["agrees"] is False:
            continue
        mine, theirs = ours[row["query"]], row[field]
        times = mine / theirs if measure in _MORE_IS_BETTER else theirs / mine
        found.setdefault(row["engine"], {})[row["query"]] = times
    return found


def geometric_mean(values: Iterable[float]) -> float:
    """Of ratios; nan where there is none."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def means(rows: Sequence[Row], measure: str) -> dict[str, float]:
    """The geometric mean of the ratios to each peer."""
    return {engine: geometric_mean(times.values()) for engine, times in ratios(rows, measure).items()}


@dataclass(frozen=True, slots=True)
class Worse:
    """A ratio that is less than what it was, by more than is tolerated."""

    engine: str
    query: str
    before: float
    now: float

    def __str__(self) -> str:
        return f"{self.query} is {self.now:.2f} times {self.engine}, and was {self.before:.2f} times"


def worse(before: Sequence[Row], now: Sequence[Row], tolerance: float) -> Iterator[Worse]:
    """Ratios of steady throughput, since times alone are of a machine; a query that no longer runs counts as 0."""
    earlier, later = ratios(before, "steady"), ratios(now, "steady")
    ran = {(row["engine"], row["query"]) for row in now}
    for engine, times in earlier.items():
        for query, ratio in times.items():
            found = later.get(engine, {}).get(query, 0.0)
            if (engine, query) in ran and (OURS, query) in ran and found < ratio * (1 - tolerance):
                yield Worse(engine, query, ratio, found)
