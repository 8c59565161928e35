"""A job on several workers gives what it gives on one: the queries at parallelism 6, over real connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from reference.cases import Case, spread_cases
from reference.checking import check

from penstock.common.program import Program
from penstock.spark import Engine


@pytest.mark.parametrize("case", spread_cases(), ids=str)
async def test_three_workers_give_what_a_batch_engine_gives(
    case: Case, engine: Engine, compile_once: Callable[[str], Awaitable[Program]]
) -> None:
    await check(case, engine, compile_once)
