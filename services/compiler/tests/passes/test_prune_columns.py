from __future__ import annotations

import pytest

from penstock.compiler.passes.prune_columns import prune_columns
from penstock.compiler.plan import Query
from penstock.compiler.testing import plan_of
from penstock.spark import Engine

TABLE = """CREATE TABLE t (a INT, b INT, xs INT[]) WITH (connector = 'single_file', path = 'x', type = 'source');
CREATE VIEW v AS SELECT a, b + 1 AS c, upper('x') AS d FROM t;
"""


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT c FROM v", ["c", "_timestamp"]),
        ("SELECT c FROM v WHERE a > 1", ["a", "c", "_timestamp"]),
        ("SELECT c FROM v; SELECT d FROM v", ["c", "d", "_timestamp"]),
        ("SELECT 1 AS one FROM v", ["_timestamp"]),
    ],
)
async def test_view_computes_only_what_its_readers_read(engine: Engine, query: str, names: list[str]) -> None:
    plan, analyst = await plan_of(TABLE + query, engine)
    pruned = await prune_columns(plan, analyst)
    view = next(step for step in pruned.steps if step.description == "select a, c, d")
    assert view.schema.names == names
    assert isinstance(view.kind, Query)
    assert [value.alias_or_name for value in view.kind.select.expressions] == names


async def test_function_that_makes_rows_stays_though_nobody_reads_it(engine: Engine) -> None:
    query = "SELECT a FROM (SELECT a, unnest(xs) AS x FROM t)"
    plan, analyst = await plan_of(TABLE + query, engine)
    pruned = await prune_columns(plan, analyst)
    assert any(step.schema.names == ["a", "x", "_timestamp"] for step in pruned.steps)
