from __future__ import annotations

from penstock.compiler.passes.drop_observations import drop_observations
from penstock.compiler.plan import Query
from penstock.compiler.testing import plan_of
from penstock.compiler.watermarks import observes
from penstock.spark import Engine

TABLE = "CREATE TABLE impulse WITH (connector = 'impulse');"


async def observations(query: str, engine: Engine) -> int:
    plan = await drop_observations(*await plan_of(TABLE + query, engine))
    return sum(isinstance(step.kind, Query) and observes(step.kind.select) for step in plan.steps)


async def test_rows_that_reach_no_operator_with_state_are_not_observed(engine: Engine) -> None:
    assert await observations("SELECT counter FROM impulse", engine) == 0


async def test_rows_that_reach_a_window_are_observed_once(engine: Engine) -> None:
    query = "SELECT counter FROM impulse; SELECT tumble(INTERVAL '1 second'), count(*) FROM impulse GROUP BY 1"
    assert await observations(query, engine) == 1


async def test_rows_of_a_group_without_a_window_are_observed_for_its_time_to_live(engine: Engine) -> None:
    assert await observations("SELECT count(*) FROM impulse", engine) == 1


async def test_rows_of_windows_in_from_are_observed_for_their_late_rows(engine: Engine) -> None:
    assert await observations("SELECT counter, window_start FROM tumble(impulse, INTERVAL '1 second')", engine) == 1
