"""Operators with state keep their ids where a changed query can go on with it, and get others where it cannot."""

from __future__ import annotations

import pytest

from penstock.common.program import ConnectorSource, TumblingWindowAggregate
from penstock.compiler.compile import compile_query
from penstock.spark import Engine

TABLES = "CREATE TABLE impulse WITH (connector = 'impulse', message_count = '10');"
COUNTS = "SELECT counter % 3 AS k, count(*) AS n FROM impulse GROUP BY 1, tumble(INTERVAL '1 second')"


async def ids(engine: Engine, sql: str) -> set[str]:
    """Those of sources and of operators with state."""
    compilation = await compile_query(TABLES + sql, engine)
    assert compilation.program is not None, compilation.diagnostics
    operators = [operator for node in compilation.program.nodes for operator in node.operators]
    return {one.key for one in operators if isinstance(one.kind, ConnectorSource | TumblingWindowAggregate)}


@pytest.mark.parametrize(
    "changed",
    [
        "SELECT k, n, n * 2 AS twice FROM (" + COUNTS + ")",
        "SELECT counter % 3 AS k, count(*) AS n, 'new' AS tag FROM impulse GROUP BY 1, tumble(INTERVAL '1 second')",
        "SELECT counter % 3 AS k, count(*) AS n FROM impulse WHERE counter > 5 GROUP BY 1, tumble(INTERVAL '1 second')",
        COUNTS + " HAVING count(*) > 1",
    ],
)
async def test_a_column_or_a_filter_keeps_the_state_of_windows(engine: Engine, changed: str) -> None:
    assert await ids(engine, changed) == await ids(engine, COUNTS)


@pytest.mark.parametrize(
    "changed",
    [
        "SELECT counter % 3 AS k, count(*) AS n, max(counter) FROM impulse GROUP BY 1, tumble(INTERVAL '1 second')",
        "SELECT counter % 3 AS k, count(*) AS n FROM impulse GROUP BY 1, tumble(INTERVAL '2 seconds')",
        "SELECT counter % 3 AS k, counter % 2, count(*) AS n FROM impulse GROUP BY 1, 2, tumble(INTERVAL '1 second')",
    ],
)
async def test_other_aggregates_windows_or_keys_begin_without_state(engine: Engine, changed: str) -> None:
    before, after = await ids(engine, COUNTS), await ids(engine, changed)
    assert before & after == {"source_impulse"} and len(before) == len(after) == 2
