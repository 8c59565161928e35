"""What tests of the passes share: plans as the planner makes them."""

from __future__ import annotations

from penstock.compiler.analysis import Analyst
from penstock.compiler.compile import Engine
from penstock.compiler.diagnostics import Problems
from penstock.compiler.parse import parse
from penstock.compiler.passes.drop_identities import drop_identities
from penstock.compiler.passes.drop_observations import drop_observations
from penstock.compiler.passes.prune_columns import prune_columns
from penstock.compiler.plan import Plan
from penstock.compiler.planner import Planner
from penstock.compiler.positions import Text


async def pruned_plan_of(query: str, engine: Engine) -> tuple[Plan, Analyst]:
    """The plan without what nobody reads or waits for."""
    plan, analyst = await plan_of(query, engine)
    return await prune_columns(await drop_observations(plan, analyst), analyst), analyst


async def tidy_plan_of(query: str, engine: Engine) -> tuple[Plan, Analyst]:
    """The pruned plan without steps that change nothing."""
    plan, analyst = await pruned_plan_of(query, engine)
    return await drop_identities(plan, analyst), analyst


async def plan_of(query: str, engine: Engine) -> tuple[Plan, Analyst]:
    """The plan of a query before any pass, and the analyst for the passes."""
    problems, text = Problems(), Text(query)
    kinds = await engine.functions()
    analyst = Analyst(engine, text, kinds)
    planner = Planner(analyst, text, problems, kinds, preview=False)
    plan = await planner.plan(parse(query, problems))
    if problems.has_errors:
        raise ValueError(f"the query is wrong: {problems.diagnostics}")
    return plan, analyst
