"""A job that was stopped, crashed or rescaled on its way gives what one gives that never was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from reference.cases import Interruption, interruptions
from reference.comparison import difference, fold, rows_of
from reference.data import dataset
from reference.interruptions import crashed, rescaled, travel
from reference.oracles import answer
from reference.runs import Cut

from penstock.common.program import Program
from penstock.spark import Engine

ROWS: Final = 400
BATCH_ROWS: Final = 7
"""So that a table has some dozens of batches, and a checkpoint falls between any two."""


@pytest.mark.parametrize("case", interruptions(), ids=str)
async def test_interrupted_stream_gives_what_a_batch_engine_gives(
    case: Interruption, engine: Engine, compile_once: Callable[[str], Awaitable[Program]], tmp_path: Path
) -> None:
    query, data = case.query, dataset(ROWS)
    program = await compile_once(query.sql)
    journey = (rescaled if case.kind == "rescaled" else crashed)(ROWS // BATCH_ROWS, case.seed)
    try:
        outcome = await travel(engine, program, data, Cut(1, BATCH_ROWS), journey, tmp_path)
        expected = await answer(query, data, engine)
        results = fold(outcome.batches) if query.updating else rows_of(outcome.batches)
        names = outcome.batches[0].schema.names if outcome.batches else []
        approximate = [place for place, name in enumerate(names) if name in query.approximate]
        problem = difference(results, rows_of([expected]), approximate)
    except AssertionError as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        pytest.fail(f"{query.name} ({query.theme}.sql), {journey}:\n{query.sql}\n\n{problem}", pytrace=False)
