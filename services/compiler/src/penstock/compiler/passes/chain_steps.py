"""Puts steps that can run in one subtask into one chain."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from penstock.common.program import AsyncUdf, LookupJoin, OperatorKey, Output
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Chain, Key, Plan, Query, Scan, Step, Write


async def chain_steps(plan: Plan, _: Analyst) -> Plan:
    """The plan with its chains: a step follows its only input, whose only reader it is, at equal parallelism."""
    readers = Counter(part.step for step in plan.steps for part in step.inputs if part.output is Output.ROWS)
    limits = _limits(plan)
    chains: dict[OperatorKey, list[Step]] = {}
    chain_of: dict[OperatorKey, OperatorKey] = {}
    for step in plan.steps:
        before = step.inputs[0] if len(step.inputs) == 1 else None
        joins = (
            before is not None
            and before.output is Output.ROWS
            and not before.keys
            and not isinstance(step.kind, AsyncUdf)  # which has a stage of its own ahead of its chain
            and readers[before.step] == 1
            and limits[before.step] == limits[step.key]
        )
        chain_of[step.key] = chain_of[before.step] if before is not None and joins else step.key
        chains.setdefault(chain_of[step.key], []).append(step)
    return replace(plan, chains=tuple(Chain(tuple(steps), limits[key]) for key, steps in chains.items()))


def _limits(plan: Plan) -> dict[OperatorKey, int | None]:
    """The most subtasks of each step; a query has those of its only input, for more would have nothing to do."""
    limits: dict[OperatorKey, int | None] = {}
    for step in plan.steps:
        match step.kind:
            case Scan(max_parallelism=limit) | Write(max_parallelism=limit):
                limits[step.key] = limit
            case Query() | Key() | LookupJoin() | AsyncUdf():
                limits[step.key] = limits[step.inputs[0].step] if len(step.inputs) == 1 else None
            case _:
                limits[step.key] = None
    return limits
