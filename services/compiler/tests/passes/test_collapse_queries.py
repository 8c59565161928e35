from __future__ import annotations

from penstock.compiler.passes.collapse_queries import collapse_queries
from penstock.compiler.passes.drop_unread import drop_unread
from penstock.compiler.plan import Query
from penstock.compiler.testing import tidy_plan_of
from penstock.spark import Engine

TABLE = "CREATE TABLE t WITH (connector = 'impulse'); CREATE VIEW v AS SELECT counter AS n FROM t WHERE counter > 1; "


async def queries_of(engine: Engine, query: str) -> list[str]:
    plan, analyst = await tidy_plan_of(TABLE + query, engine)
    collapsed = await collapse_queries(await drop_unread(plan, analyst), analyst)
    return [step.kind.sql for step in collapsed.steps if isinstance(step.kind, Query)]


async def test_queries_that_follow_each_other_become_one(engine: Engine) -> None:
    (sql,) = await queries_of(engine, "SELECT w.n + 1 AS m FROM v AS w WHERE n < 9")
    assert sql == (
        "SELECT `w`.`n` + 1 AS `m`, `w`.`_timestamp` FROM (SELECT `counter` AS `n`, "
        "`t`.`_timestamp` FROM `input` AS `t` WHERE `counter` > 1) AS `w` WHERE `n` < 9"
    )


async def test_query_with_two_readers_is_computed_once(engine: Engine) -> None:
    sqls = await queries_of(engine, "SELECT n FROM v; SELECT n + 1 AS m FROM v")
    assert len(sqls) == 2
    assert sum("`counter` > 1" in sql for sql in sqls) == 1


async def test_query_over_a_union_stays_outside_its_sides(engine: Engine) -> None:
    sqls = await queries_of(engine, "SELECT n * 2 AS m FROM (SELECT n FROM v UNION ALL SELECT counter FROM t)")
    assert [("* 2" in sql, "`counter` > 1" in sql) for sql in sqls] == [(False, True), (False, False), (True, False)]
