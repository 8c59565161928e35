"""A stream gives what a batch engine gives of all its rows, whatever the parallelism and however the rows are cut."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from reference.cases import Case, cases
from reference.checking import check

from penstock.common.program import Program
from penstock.spark import Engine


@pytest.mark.parametrize("case", cases(), ids=str)
async def test_stream_gives_what_a_batch_engine_gives(
    case: Case, engine: Engine, compile_once: Callable[[str], Awaitable[Program]]
) -> None:
    await check(case, engine, compile_once)
