"""What tests of the passes share: plans as the planner makes them."""

from __future__ import annotations

from penstock.compiler.analysis import Analyst
from penstock.compiler.compile import Engine
from penstock.compiler.diagnostics import Problems
from penstock.compiler.parse import parse
from penstock.compiler.plan import Plan
from penstock.compiler.planner import Planner
from penstock.compiler.positions import Text


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
