"""Which queries are run in which cuts: a sample of all that changes from day to day, or everything."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from typing import Final, Literal

from reference.queries import Query, queries
from reference.runs import Cut, Spread

FULL: Final = "PENSTOCK_TEST_FULL" in os.environ
SEED: Final = int(os.environ.get("PENSTOCK_TEST_SEED") or datetime.now(UTC).date().toordinal())
CHOSEN: Final = os.environ.get("PENSTOCK_TEST_QUERIES", "")
"""A pattern: all queries whose names match it are run in all cuts."""

PARALLELISMS: Final = (1, 2, 3)
DATASETS: Final = {1: 120, 7: 700, 1000: 4000, 100_000: 4000}
"""The rows for each size of batches: single rows take their time."""

_SAMPLE: Final = 28
_SPREAD_SAMPLE: Final = 4


@dataclass(frozen=True)
class Case:
    """A query in one cut."""

    query: Query
    cut: Cut

    def __str__(self) -> str:
        return f"{self.query.name}-{self.cut}"

    @property
    def rows(self) -> int:
        return DATASETS[self.cut.batch_rows]


@dataclass(frozen=True)
class Interruption:
    """A query, and how it is interrupted."""

    query: Query
    kind: Literal["rescaled", "crashed"]
    seed: int

    def __str__(self) -> str:
        return f"{self.query.name}-{self.kind}-{self.seed}"


def interruptions() -> list[Interruption]:
    """The interruptions of this run: in full, each query is rescaled once and crashed five times."""
    seeds: list[tuple[Literal["rescaled", "crashed"], int]] = [
        ("rescaled", SEED),
        *(("crashed", SEED + n) for n in range(5)),
    ]
    if FULL or CHOSEN:
        chosen = [query for query in queries() if fnmatch(query.name, CHOSEN or "*")]
        return [Interruption(query, kind, seed) for query in chosen for kind, seed in seeds]
    dice = random.Random(SEED)
    sample = sorted(dice.sample(queries(), _SAMPLE // 2), key=lambda query: (query.theme, query.name))
    return [Interruption(query, *seeds[place % len(seeds)]) for place, query in enumerate(sample)]


def groups(size: int) -> list[tuple[Query, ...]]:
    """Queries that are run together on a cluster: all of them in full, or else a few."""
    if FULL or CHOSEN:
        chosen = [query for query in queries() if fnmatch(query.name, CHOSEN or "*")]
    else:
        chosen = random.Random(SEED).sample(queries(), size)
    random.Random(SEED).shuffle(chosen)
    return [tuple(chosen[begin : begin + size]) for begin in range(0, len(chosen), size)]


def spread_cases() -> list[Case]:
    """Queries at parallelism 6 on three workers: a few of them, or each once."""
    batch_rows = list(DATASETS)[1:]
    if FULL or CHOSEN:
        chosen = [query for query in queries() if fnmatch(query.name, CHOSEN or "*")]
    else:
        chosen = random.Random(SEED + 1).sample(queries(), _SPREAD_SAMPLE)
    return [Case(query, Spread(6, batch_rows[place % len(batch_rows)])) for place, query in enumerate(chosen)]


def cases() -> list[Case]:
    """The cases of this run."""
    cuts = [Cut(parallelism, batch_rows) for parallelism in PARALLELISMS for batch_rows in DATASETS]
    if FULL or CHOSEN:
        return [Case(query, cut) for query in queries() if fnmatch(query.name, CHOSEN or "*") for cut in cuts]
    dice = random.Random(SEED)
    # All cuts take their turn, and queries of all themes do.
    chosen = sorted(dice.sample(queries(), _SAMPLE), key=lambda query: (query.theme, query.name))
    return [Case(query, cuts[(place + SEED) % len(cuts)]) for place, query in enumerate(chosen)]
