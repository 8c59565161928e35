"""Nexmark on Penstock and its peers, side by side: the same events, one engine at a time, answers that are compared.

`README.md` says what is measured and how; `--write` records it, `--check` compares it with what was recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from environments import PeerUnavailable
from peers.base import Engine
from peers.bytewax_engine import Bytewax
from peers.command import load_since, machine, prepared, say, some_of
from peers.events import Files, write_files
from peers.figures import OURS, Found, NotAlike, Row, rows_of, with_again, worse
from peers.flink_engine import FlinkSql
from peers.measuring import Measured, NotRun, Rounds, contender
from peers.penstock_engine import Penstock
from peers.picture import draw
from peers.queries import QUERIES, Query
from peers.report import page, table
from peers.spark_engine import StructuredStreaming
from sessions import Command

_HEAP: Final = 2 << 30
"""What the peers' JVMs have for a heap: as much as Penstock's has in and outside of it."""
_BENCHMARKS: Final = Path(__file__).parents[1]
_PAGE: Final = _BENCHMARKS / "results.md"
_RECORD: Final = _BENCHMARKS / "results.json"
_PICTURE: Final = _BENCHMARKS.parent / "docs" / "nexmark.svg"
ENGINES: Final[Sequence[Engine]] = (Penstock(), FlinkSql(_HEAP), StructuredStreaming(_HEAP), Bytewax())


def main() -> None:
    arguments = _arguments()
    engines = [engine for engine in ENGINES if engine.name in arguments.engines]
    queries = [query for query in QUERIES if query.name in arguments.queries]
    rounds = Rounds(warming=0, counted=1) if arguments.quick else Rounds(warming=4, counted=3)
    events = arguments.events or (200_000 if arguments.quick else 2_000_000)
    result = compare(Plan(engines, queries, events, rounds, shared=arguments.quick))
    print(json.dumps(result) if arguments.json else table(result["rows"]))
    problems = _problems(result["rows"], arguments)
    if arguments.write:
        _write(result)
    sys.exit(problems)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared."""

    engines: Sequence[Engine]
    queries: Sequence[Query]
    events: int
    rounds: Rounds
    shared: bool
    """Whether an engine does all queries in one process: much less to wait for, and nothing is cold but the first."""


def compare(plan: Plan) -> dict[str, Any]:
    """Everything that was found, as plain JSON."""
    commands, versions = prepared(plan.engines)
    began, load = datetime.now(UTC), os.getloadavg()[0]
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        say(f"writing {plan.events:,} events")
        files = write_files(Path(folder), plan.events)
        for engine, queries in _turns(plan):
            found.update(_run(engine, commands[engine.name], queries, files, plan.rounds))
    rounds = plan.rounds
    return {
        "benchmark": "nexmark",
        "date": f"{began:%Y-%m-%d}",
        "machine": machine(),
        "load": load_since(load),
        "events": f"{plan.events:,}",
        "rounds": f"1 cold, {rounds.warming} to warm, {rounds.counted} counted (medians)",
        "versions": versions,
        "rows": rows_of([query.name for query in plan.queries], [engine.name for engine in plan.engines], found),
    }


def _turns(plan: Plan) -> Iterator[tuple[Engine, Sequence[Query]]]:
    """Which queries an engine does in one process, in turn: all, or one after the other engines did the one before."""
    if plan.shared:
        yield from ((engine, plan.queries) for engine in plan.engines)
    else:
        yield from ((engine, [query]) for query in plan.queries for engine in plan.engines)


def _run(engine: Engine, command: Command | NotRun, queries: Sequence[Query], files: Files, rounds: Rounds) -> Found:
    if isinstance(command, NotRun):
        return {(query.name, engine.name): command for query in queries}
    found: Found = {}
    try:
        with contender(engine, command) as opened:
            for query in queries:
                say(f"{query.name} on {engine.name}")
                found[query.name, engine.name] = one = opened.measure(query, files, rounds)
                say(f"{query.name} on {engine.name}: {_outcome(one)}")
    except PeerUnavailable as reason:
        return {(query.name, engine.name): NotRun(str(reason)) for query in queries} | found
    return found


def _outcome(found: Measured | NotRun) -> str:
    if isinstance(found, NotRun):
        return f"not run: {found.reason}"
    return f"{found.steady_rate:,.0f} events/s, {found.answers.rows:,} answers"


def _problems(rows: Sequence[Row], arguments: argparse.Namespace) -> str | None:
    """Why the command fails: answers that differ, our own query that does not run, or a ratio that got worse."""
    found = [f"{row['query']}: answers of {row['engine']} differ" for row in rows if row.get("agrees") is False]
    found += [f"{row['query']}: {row['not_run']}" for row in rows if row["engine"] == OURS and "not_run" in row]
    if arguments.check:
        before = json.loads(_RECORD.read_text())["rows"]
        found += [str(one) for one in worse(before, rows, arguments.tolerance)]
    return "\n".join(found) or None


def _write(result: dict[str, Any]) -> None:
    if len({row["query"] for row in result["rows"]}) < len(QUERIES) and _RECORD.exists():
        try:
            result = with_again(json.loads(_RECORD.read_text()), result, [query.name for query in QUERIES])
        except NotAlike as error:
            sys.exit(f"not recorded: {error}; compare all queries again")
    _RECORD.write_text(json.dumps(result, indent=1) + "\n")
    _PAGE.write_text(page(result))
    _PICTURE.write_text(draw(result["rows"]))
    say(f"wrote {_PAGE.name}, {_RECORD.name} and {_PICTURE.name}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    names, engines = [query.name for query in QUERIES], [engine.name for engine in ENGINES]
    parser.add_argument("--json", action="store_true", help="print one JSON object with the figures")
    parser.add_argument("--quick", action="store_true", help="few events and rounds: do all run, and do answers agree?")
    parser.add_argument("--queries", type=some_of(names), default=names, help="q0,q5: only these")
    parser.add_argument("--engines", type=some_of(engines), default=engines, help=f"of {','.join(engines)}")
    parser.add_argument("--events", type=int, help="2,000,000, or 200,000 with --quick")
    parser.add_argument("--write", action="store_true", help="record it: results.md, results.json, docs/nexmark.svg")
    parser.add_argument("--check", action="store_true", help="fail if a ratio is worse than in results.json")
    parser.add_argument("--tolerance", type=float, default=0.3, help="by how much it may be: 0.3 is 30 %%")
    arguments = parser.parse_args()
    if arguments.quick and (arguments.write or arguments.check):
        parser.error("figures of --quick say nothing: they are neither recorded nor compared")
    if arguments.write and len(arguments.engines) < len(engines):
        parser.error("what is recorded is a comparison of all engines")
    if arguments.check and not _RECORD.exists():
        parser.error(f"there is no {_RECORD.name} to compare with; --write makes one")
    return arguments


if __name__ == "__main__":
    main()
