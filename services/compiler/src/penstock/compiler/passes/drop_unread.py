"""Drops the steps whose rows reach no sink: views and tables that nobody reads."""

from __future__ import annotations

from dataclasses import replace

from penstock.common.program import OperatorKey
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Plan, Write


async def drop_unread(plan: Plan, _: Analyst) -> Plan:
    """The plan with the steps only that a sink needs."""
    needed: set[OperatorKey] = set()
    for step in reversed(plan.steps):
        if isinstance(step.kind, Write) or step.key in needed:
            needed.update([step.key, *(part.step for part in step.inputs)])
    return replace(plan, steps=tuple(step for step in plan.steps if step.key in needed))
