"""One engine for all queries, the programs that were compiled on it, and the seed that chose among them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from reference.cases import FULL, SEED
from reference.runs import NotCompiled, compiled

from penstock.common.program import Program
from penstock.spark import Engine
from penstock.spark.testing import spark_settings


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[Engine]:
    async with await Engine.start(spark_settings()) as engine:
        yield engine


@pytest.fixture(scope="session")
def compile_once(engine: Engine) -> Callable[[str], Awaitable[Program]]:
    """Compiles a query over the tables of `data`, unless it was compiled before."""
    programs: dict[str, Program | NotCompiled] = {}

    async def compile_once(sql: str) -> Program:
        if sql not in programs:
            try:
                programs[sql] = await compiled(engine, sql)
            except NotCompiled as error:
                programs[sql] = error
        found = programs[sql]
        if isinstance(found, NotCompiled):
            raise found
        return found

    return compile_once


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    which = (
        "all reference queries" if FULL else f"a sample of the reference queries: PENSTOCK_TEST_SEED={SEED} repeats it"
    )
    terminalreporter.write_line(which)
