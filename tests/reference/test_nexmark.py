"""Every query of Nexmark gives what Spark gives of all events at once: in parallel, from files, and after crashes."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pytest
from nexmark.queries import NexmarkQuery, nexmark_queries
from reference.cases import CHOSEN, FULL, SEED
from reference.comparison import difference, fold, rows_of
from reference.interruptions import crashed, travel_with
from reference.memory import MemoryTables
from reference.nexmark_runs import EVENTS, answer_of, connectors_of, program_of, write_files
from reference.runs import Cut, run_job

from penstock.spark import Engine

BATCH_ROWS: Final = 1000
SAMPLE: Final = 6

Way = Literal["one", "two", "files", "crashed"]
WAYS: Final[tuple[Way, ...]] = ("one", "two", "files", "crashed")
"""At parallelism 1 and 2 from the generator, at 2 from files, and from the generator with crashes on the way."""


@dataclass(frozen=True)
class NexmarkCase:
    """A query, and how it is run."""

    query: NexmarkQuery
    way: Way

    def __str__(self) -> str:
        return f"{self.query}-{self.way}"


def nexmark_cases() -> list[NexmarkCase]:
    """All queries in all ways; or a few each day, of which all ways take their turn."""
    if FULL or CHOSEN:
        chosen = [query for query in nexmark_queries() if fnmatch(str(query), CHOSEN or "*")]
        return [NexmarkCase(query, way) for query in chosen for way in WAYS]
    sample = random.Random(SEED).sample(nexmark_queries(), SAMPLE)
    return [NexmarkCase(query, WAYS[(place + SEED) % len(WAYS)]) for place, query in enumerate(sample)]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark")
    write_files(folder)
    return folder


@pytest.fixture(scope="session")
def answer_once(engine: Engine, files: Path) -> Callable[[NexmarkQuery], Awaitable[pa.Table]]:
    """What Spark answers, unless it was asked before."""
    answers: dict[NexmarkQuery, pa.Table] = {}

    async def answer_once(query: NexmarkQuery) -> pa.Table:
        if query not in answers:
            answers[query] = await answer_of(query, engine, files)
        return answers[query]

    return answer_once


@pytest.mark.parametrize("case", nexmark_cases(), ids=str)
async def test_nexmark_query_gives_what_spark_gives_of_all_events(
    case: NexmarkCase,
    engine: Engine,
    files: Path,
    answer_once: Callable[[NexmarkQuery], Awaitable[pa.Table]],
    tmp_path: Path,
) -> None:
    program = await program_of(engine, case.query, files, from_files=case.way == "files")
    tables = MemoryTables.of_nothing()
    connectors = connectors_of(tables)
    if case.way == "crashed":
        journey = crashed(EVENTS // BATCH_ROWS, SEED + case.query.number)
        cut = Cut(journey.last_parallelism, BATCH_ROWS)
        late_rows = (await travel_with(engine, program, tables, cut, journey, tmp_path, connectors)).late_rows
    else:
        execution = await run_job(engine, program, Cut(1 if case.way == "one" else 2, BATCH_ROWS), connectors)
        late_rows = sum(metrics.late_rows for metrics in execution.metrics)
    expected = rows_of([await answer_once(case.query)])
    results = fold(tables.written) if case.query.updating else rows_of(tables.written)
    assert late_rows == 0
    assert expected, "a question without an answer shows nothing"
    assert (problem := difference(results, expected)) is None, problem
