from __future__ import annotations

from penstock.compiler.passes.drop_unread import drop_unread
from penstock.compiler.testing import plan_of
from penstock.spark import Engine

QUERY = """
CREATE TABLE a WITH (connector = 'impulse');
CREATE TABLE b WITH (connector = 'impulse');
CREATE VIEW unread AS SELECT counter FROM b;
WITH also_unread AS (SELECT counter + 1 AS n FROM a) SELECT counter FROM a;
"""


async def test_steps_that_reach_no_sink_are_dropped_with_their_source(engine: Engine) -> None:
    plan, analyst = await plan_of(QUERY, engine)
    assert {"source_a", "source_b"} <= {step.key for step in plan.steps}
    dropped = await drop_unread(plan, analyst)
    keys = [step.key for step in dropped.steps]
    assert keys[0] == "source_a" and keys[-1] == "sink_preview"
    assert "source_b" not in keys
    assert len(keys) == 7  # event time and watermark, the SELECT, and the columns and the rows of its sink


async def test_plan_in_which_all_is_read_stays_as_it_is(engine: Engine) -> None:
    plan, analyst = await plan_of("CREATE TABLE a WITH (connector = 'impulse'); SELECT counter FROM a", engine)
    assert await drop_unread(plan, analyst) == plan
