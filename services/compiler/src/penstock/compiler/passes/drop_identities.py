"""Drops queries that give their input as it is."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.common.program import OperatorKey, Output
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Input, Plan, Query, Step


async def drop_identities(plan: Plan, _: Analyst) -> Plan:
    """The plan without steps whose rows are exactly those that come in."""
    kept: dict[OperatorKey, Step] = {}
    passed_on: dict[OperatorKey, tuple[Input, ...]] = {}
    for step in plan.steps:
        inputs = tuple(found for part in step.inputs for found in passed_on.get(part.step, (part,)))
        step = replace(step, inputs=inputs)
        if isinstance(step.kind, Query) and _is_identity(step, step.kind, kept):
            passed_on[step.key] = inputs
        else:
            kept[step.key] = step
    return replace(plan, steps=tuple(kept.values()))


def _is_identity(step: Step, query: Query, steps: dict[OperatorKey, Step]) -> bool:
    select = query.select
    if select.args.get("where") or select.args.get("laterals"):
        return False
    if not all(isinstance(value, exp.Column) for value in select.expressions):
        return False
    if any(part.output is not Output.ROWS for part in step.inputs):
        return False
    names = [value.name for value in select.expressions]
    return names == step.schema.names and all(
        step.schema.equals(steps[part.step].schema, check_metadata=True) for part in step.inputs
    )
