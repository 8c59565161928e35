from __future__ import annotations

import pytest

from penstock.common.program import TumblingWindowAggregate
from penstock.compiler.passes.collapse_queries import collapse_queries
from penstock.compiler.passes.drop_unread import drop_unread
from penstock.compiler.passes.share_windows import share_windows
from penstock.compiler.plan import Plan, Step
from penstock.compiler.testing import tidy_plan_of
from penstock.spark import Engine

TABLE = """CREATE TABLE t (a INT, b INT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
WITH (connector = 'single_file', path = 'x', type = 'source');
"""
WIDE = "SELECT a, count(*) AS n, sum(b) AS s, tumble(INTERVAL '1 minute') AS w FROM t GROUP BY a, w;"


async def shared(engine: Engine, query: str) -> tuple[Plan, list[Step]]:
    """A plan, and its steps that group rows by windows."""
    plan, analyst = await tidy_plan_of(TABLE + query, engine)
    plan = await share_windows(await collapse_queries(await drop_unread(plan, analyst), analyst), analyst)
    known: set[str] = set()
    for step in plan.steps:
        assert {part.step for part in step.inputs} <= known
        known.add(step.key)
    return plan, [step for step in plan.steps if isinstance(step.kind, TumblingWindowAggregate)]


@pytest.mark.parametrize("turned", [False, True])
async def test_a_step_that_gives_more_columns_serves_one_that_gives_fewer(engine: Engine, turned: bool) -> None:
    narrow = "SELECT count(*) AS n, sum(b) AS s, tumble(INTERVAL '1 minute') AS w FROM t GROUP BY a, w;"
    plan, (windows,) = await shared(engine, narrow + WIDE if turned else WIDE + narrow)
    assert windows.schema.names == ["a", "n", "s", "w", "_timestamp"]
    readers = [step.schema.names for step in plan.steps if any(part.step == windows.key for part in step.inputs)]
    assert ["n", "s", "w", "_timestamp"] in readers


async def test_equal_queries_are_grouped_once(engine: Engine) -> None:
    _, windows = await shared(engine, WIDE * 3)
    assert len(windows) == 1


@pytest.mark.parametrize(
    "other",
    [
        "SELECT b, count(*) AS n, tumble(INTERVAL '1 minute') AS w FROM t GROUP BY b, w;",
        "SELECT a, count(*) AS n, tumble(INTERVAL '2 minutes') AS w FROM t GROUP BY a, w;",
        "SELECT a, count(*) AS n, tumble(INTERVAL '1 minute') AS w FROM t WHERE b > 1 GROUP BY a, w;",
        "SELECT a, count(*) AS n, tumble(INTERVAL '1 minute') AS w FROM t GROUP BY a, w HAVING count(*) > 1;",
        "SELECT a, max(b) AS n, tumble(INTERVAL '1 minute') AS w FROM t GROUP BY a, w;",
        "SELECT a + 1 AS a, count(*) AS n, sum(b) AS s, tumble(INTERVAL '1 minute') AS w FROM t GROUP BY t.a, w;",
    ],
)
async def test_other_groups_are_grouped_apart(engine: Engine, other: str) -> None:
    _, windows = await shared(engine, WIDE + other)
    assert len(windows) == 2


async def test_each_query_takes_random_rows_of_its_own(engine: Engine) -> None:
    query = "SELECT count(*) AS n, tumble(INTERVAL '1 minute') AS w FROM t WHERE rand() < 0.5 GROUP BY a, w;"
    _, windows = await shared(engine, query * 2)
    assert len(windows) == 2
