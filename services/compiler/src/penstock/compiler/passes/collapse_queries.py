"""Makes one query of two that follow each other; Spark's optimiser then sees all of a chain's work at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from penstock.common.program import OperatorKey
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Key, Plan, Query, Step, nested


async def collapse_queries(plan: Plan, _: Analyst) -> Plan:
    """The plan with each query that has one reader, itself a query, inside that reader."""
    steps: dict[OperatorKey, Step] = {}
    readers = Counter(part.step for step in plan.steps for part in step.inputs)
    for step in plan.steps:
        before = steps.get(step.inputs[0].step) if len(step.inputs) == 1 else None
        if (
            before is not None
            and isinstance(step.kind, Query | Key)
            and isinstance(before.kind, Query)
            and readers[before.key] == 1
        ):
            del steps[before.key]
            step = replace(
                step,
                kind=replace(step.kind, select=nested(step.kind.select, before.kind.select)),
                inputs=before.inputs,
                description=f"{before.description}, {step.description}",
            )
        steps[step.key] = step
    return replace(plan, steps=tuple(steps.values()))
