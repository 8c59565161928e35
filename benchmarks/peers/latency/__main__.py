"""Latency of Penstock and its peers, side by side: the same questions at the same rates, one engine at a time.

Rows are filtered, or counted by key in windows; `latencies.py` says from when to when. `../README.md` says how engines
are fed and set up.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from environments import PeerUnavailable
from latencies import Arrivals, Float64s, WrongAnswers, quantiles
from peers.command import load_since, machine, prepared, say, some_of
from peers.figures import OURS
from peers.latency.cases import CASES, Case
from peers.latency.engines import ENGINES, Engine
from peers.latency.feeder import feeder
from peers.latency.report import table
from peers.measuring import NotRun
from sessions import Command, JobRefused, Session, session

_LEAD_SECONDS: Final = 2
"""What is not counted of each run: its beginning."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long a case is run, to warm its code and to count."""

    warming_seconds: int
    counted_seconds: int


def main() -> None:
    arguments = _arguments()
    engines = [engine for engine in ENGINES if engine.name in arguments.engines]
    cases = [case for case in CASES if case.name in arguments.cases]
    result = compare(engines, cases, Rounds(3, 8) if arguments.quick else Rounds(10, 60))
    print(json.dumps(result) if arguments.json else f"{table(result['rows'])}\nload: {result['load']}")
    sys.exit("\n".join(_problems(result["rows"])) or None)


def _problems(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Why the command fails: our own cases that do not run, or have other answers."""
    for row in rows:
        if row["engine"] == OURS and "not_run" in row:
            yield f"{row['query']} at {row['events_s']:,} events/s: {row['not_run']}"


def compare(engines: Sequence[Engine], cases: Sequence[Case], rounds: Rounds) -> dict[str, Any]:
    """Everything that was found, as plain JSON, by case."""
    commands, versions = prepared(engines)
    began, load = datetime.now(UTC), os.getloadavg()[0]
    found = {engine.name: _run(engine, commands[engine.name], cases, rounds) for engine in engines}
    return {
        "benchmark": "latency of peers",
        "date": f"{began:%Y-%m-%d}",
        "machine": machine(),
        "load": load_since(load),
        "rounds": f"{rounds.warming_seconds} s to warm, {rounds.counted_seconds} s, {_LEAD_SECONDS} of them left out",
        "versions": versions,
        "rows": [found[engine.name][index] for index in range(len(cases)) for engine in engines],
    }


def _run(engine: Engine, command: Command | NotRun, cases: Sequence[Case], rounds: Rounds) -> list[dict[str, Any]]:
    """All cases of an engine, in one process."""
    if isinstance(command, NotRun):
        return [_row(engine, case, command) for case in cases]
    try:
        with tempfile.TemporaryDirectory() as folder, session(command, Path(folder) / "log") as opened:
            return list(_measure(engine, opened, cases, rounds))
    except PeerUnavailable as reason:
        return [_row(engine, case, NotRun(f"not available: {reason}")) for case in cases]


def _measure(engine: Engine, opened: Session, cases: Sequence[Case], rounds: Rounds) -> Iterator[dict[str, Any]]:
    for case in cases:
        say(f"{case.name} on {engine.name}")
        try:
            _arrivals(engine, opened, case, rounds.warming_seconds)
            arrivals = _arrivals(engine, opened, case, rounds.counted_seconds)
            latencies = case.latencies_ms(arrivals, rounds.counted_seconds, _LEAD_SECONDS * 1_000_000)
            yield _row(engine, case, latencies)
        except (JobRefused, PeerUnavailable, WrongAnswers) as reason:
            yield _row(engine, case, NotRun(str(reason)))


def _arrivals(engine: Engine, opened: Session, case: Case, seconds: int) -> Arrivals:
    """What comes to the sink in a run."""
    fed = feeder(case.rate, case.rate * seconds) if engine.is_fed else nullcontext()
    with tempfile.TemporaryDirectory() as folder, fed as port:
        into = Path(folder) / "arrivals"
        opened.run({**case.job(seconds), "port": port, "into": str(into)})
        return Arrivals.read(into)


def _row(engine: Engine, case: Case, found: Float64s | NotRun) -> dict[str, Any]:
    place = {"query": case.query, "events_s": case.rate, "engine": engine.name}
    if isinstance(found, NotRun):
        return {**place, "not_run": found.reason}
    return {**place, "samples": len(found), **quantiles(found)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peers.latency", description=__doc__)
    cases, engines = [case.name for case in CASES], [engine.name for engine in ENGINES]
    parser.add_argument("--json", action="store_true", help="print one JSON object with the figures")
    parser.add_argument("--quick", action="store_true", help="8 s instead of 60 for each case: does everything run?")
    parser.add_argument("--cases", type=some_of(cases), default=cases, help=f"of {','.join(cases)}")
    parser.add_argument("--engines", type=some_of(engines), default=engines, help=f"of {','.join(engines)}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
