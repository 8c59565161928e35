"""Compares what a job gave with what a batch engine gives of the same rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from reference.cases import Case
from reference.comparison import appends_of_keys, difference, fold, rows_of
from reference.data import dataset
from reference.oracles import answer
from reference.queries import Query
from reference.runs import Cut, Outcome, run

from penstock.common.program import OP_COLUMN, Program
from penstock.spark import Engine


async def check(case: Case, engine: Engine, compile_once: Callable[[str], Awaitable[Program]]) -> None:
    """Fails unless a query gives what a batch engine gives."""
    query, data = case.query, dataset(case.rows)
    try:
        program = await compile_once(query.sql)
        outcome = await run(engine, program, data, case.cut)
        expected = await answer(query, data, engine)
        problem = _problem(query, case.cut, outcome) or difference(
            _results(query, outcome), rows_of([expected]), _approximate(query, outcome)
        )
    except AssertionError as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        cut = f"parallelism {case.cut.parallelism}, batches of {case.cut.batch_rows} of {case.rows} rows"
        pytest.fail(f"{query.name} ({query.theme}.sql) with {cut}:\n{query.sql}\n\n{problem}", pytrace=False)


def _results(query: Query, outcome: Outcome) -> list[tuple[object, ...]]:
    return fold(outcome.batches) if query.updating else rows_of(outcome.batches)


def _problem(query: Query, cut: Cut, outcome: Outcome) -> str | None:
    """What is wrong before any row is looked at."""
    if outcome.late_rows:
        return f"{outcome.late_rows} rows were late, though none is beyond the watermark's bound"
    if not query.updating and any(OP_COLUMN in batch.schema.names for batch in outcome.batches):
        return "its results are changes, though every row of it is final"
    if query.key is not None:
        counts = appends_of_keys(outcome.batches, query.key)
        key, most = max(counts.items(), key=lambda count: count[1], default=((), 0))
        # Behind another updating step, each of its subtasks may have made something of a batch.
        if most > outcome.batches_read * cut.parallelism**2:
            return f"the key {key} had {most} results for {outcome.batches_read} batches that were read"
    return None


def _approximate(query: Query, outcome: Outcome) -> list[int]:
    names = outcome.batches[0].schema.names if outcome.batches else []
    return [place for place, name in enumerate(names) if name in query.approximate]
