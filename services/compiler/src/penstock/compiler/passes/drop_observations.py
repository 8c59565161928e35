"""Lets sources observe event times only where a later step waits for watermarks."""

from __future__ import annotations

from dataclasses import replace

from penstock.common.program import AsyncUdf, LookupJoin, OperatorKey
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Plan, Query, Scan, Step, Write
from penstock.compiler.watermarks import drops_late_rows, observes, without_observation


async def drop_observations(plan: Plan, _: Analyst) -> Plan:
    """The plan with observations only of rows that reach an operator with state, or a query that drops late rows."""
    awaited: set[OperatorKey] = set()
    steps: list[Step] = []
    for step in reversed(plan.steps):
        if step.key in awaited or _awaits(step):
            awaited.update(part.step for part in step.inputs)
        elif isinstance(step.kind, Query) and observes(step.kind.select):
            step = replace(step, kind=Query(without_observation(step.kind.select)))
        steps.append(step)
    return replace(plan, steps=tuple(reversed(steps)))


def _awaits(step: Step) -> bool:
    if isinstance(step.kind, Query):
        return drops_late_rows(step.kind.select)
    return not isinstance(step.kind, Scan | LookupJoin | AsyncUdf | Write)
