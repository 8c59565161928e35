"""Drops the columns of queries that no later step reads, so that nothing of them is computed or read."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import AsyncUdf, LookupJoin, OperatorKey, Output
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Input, Key, Plan, Query, Step, projections
from penstock.connectors.base import DEAD_LETTERS, TIMESTAMP_COLUMN


async def prune_columns(plan: Plan, analyst: Analyst) -> Plan:
    """The plan with the columns only that somebody reads; those of sources are left to `prune_sources`."""
    wanted: dict[OperatorKey, set[str]] = {step.key: {TIMESTAMP_COLUMN} for step in plan.steps}
    schemas = {step.key: step.schema for step in plan.steps}
    pruned: list[Step] = []
    for step in reversed(plan.steps):
        if isinstance(step.kind, Query):
            step = _narrowed(step, step.kind, wanted[step.key], analyst)
        elif isinstance(step.kind, LookupJoin):
            step = _narrowed_lookup(step, step.kind, wanted[step.key])
        elif isinstance(step.kind, AsyncUdf):
            passed_on = [found for found in step.schema if found.name in wanted[step.key] | {step.kind.result}]
            step = replace(step, schema=pa.schema(passed_on))
        for part in step.inputs:
            wanted[part.step] |= await _read_by(step, part, schemas, analyst)
        pruned.append(step)
    return replace(plan, steps=tuple(reversed(pruned)))


def _narrowed(step: Step, query: Query, wanted: set[str], analyst: Analyst) -> Step:
    kept = [value for name, value in projections(query.select) if name in wanted or _makes_rows(value, analyst)]
    if len(kept) == len(query.select.expressions):
        return step
    select = query.select.copy()
    select.set("expressions", [value.copy() for value in kept])
    names = {value.alias_or_name for value in kept}
    schema = pa.schema([field for field in step.schema if field.name in names])
    return replace(step, kind=Query(select), schema=schema)


def _narrowed_lookup(step: Step, join: LookupJoin, wanted: set[str]) -> Step:
    """A lookup that asks only for what is read, and its key."""
    names = {name: column for name, column in join.names.items() if name in wanted}
    fields = list(join.looked_up)
    key, others = fields[: len(join.keys)], fields[len(join.keys) :]
    looked_up = pa.schema([*key, *(field for field in others if field.name in names.values())])
    schema = pa.schema([field for field in step.schema if field.name in wanted])
    return replace(step, kind=replace(join, looked_up=looked_up, names=names), schema=schema)


def _makes_rows(value: exp.Expr, analyst: Analyst) -> bool:
    """Whether the number of rows depends on a column, which must stay even when its values are not read."""
    return any(analyst.makes_rows(call.name) for call in value.find_all(exp.Anonymous))


async def _read_by(step: Step, part: Input, schemas: dict[OperatorKey, pa.Schema], analyst: Analyst) -> set[str]:
    schema = DEAD_LETTERS if part.output is Output.DEAD_LETTERS else schemas[part.step]
    if isinstance(step.kind, LookupJoin):
        return {*step.kind.keys, *(name for name in step.schema.names if name not in step.kind.names)}
    if isinstance(step.kind, AsyncUdf):
        return {*step.schema.names, *step.kind.arguments} - {step.kind.result}
    if not isinstance(step.kind, Query | Key):
        return set(schema.names)
    return set((await analyst.used_by(step.kind.select, schema)).names)
