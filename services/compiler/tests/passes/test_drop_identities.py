from __future__ import annotations

from penstock.compiler.passes.drop_identities import drop_identities
from penstock.compiler.plan import Query
from penstock.compiler.testing import pruned_plan_of
from penstock.spark import Engine

TABLE = """CREATE TABLE t (a INT NOT NULL, b INT) WITH (connector = 'single_file', path = 'x', type = 'source');
CREATE TABLE out (a INT, b INT) WITH (connector = 'blackhole');
"""


async def queries_of(engine: Engine, query: str) -> int:
    plan, analyst = await pruned_plan_of(TABLE + query, engine)
    dropped = await drop_identities(plan, analyst)
    known = {step.key for step in dropped.steps}
    assert all(part.step in known for step in dropped.steps for part in step.inputs)
    return sum(isinstance(step.kind, Query) for step in dropped.steps)


async def test_queries_that_change_nothing_are_dropped(engine: Engine) -> None:
    assert await queries_of(engine, "INSERT INTO out SELECT * FROM (SELECT a, b FROM t)") == 0


async def test_query_with_another_order_of_columns_stays(engine: Engine) -> None:
    assert await queries_of(engine, "SELECT b, a FROM t") == 1


async def test_order_that_a_later_query_undoes_is_dropped(engine: Engine) -> None:
    assert await queries_of(engine, "INSERT INTO out (b, a) SELECT b, a FROM t") == 0


async def test_query_that_leaves_out_columns_is_dropped_before_one_that_picks_its_own(engine: Engine) -> None:
    assert await queries_of(engine, "INSERT INTO out (a) SELECT a + 1 FROM (SELECT a FROM t)") == 2


async def test_filter_stays(engine: Engine) -> None:
    assert await queries_of(engine, "INSERT INTO out SELECT * FROM t WHERE a > 1") == 1


async def test_side_of_a_union_that_may_be_null_where_the_other_may_not_stays(engine: Engine) -> None:
    assert await queries_of(engine, "SELECT a FROM t UNION ALL SELECT b FROM t") == 2
