"""Drops queries that give their input as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import OperatorKey, Output
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Input, Key, Plan, Query, Step, input_table


async def drop_identities(plan: Plan, _: Analyst) -> Plan:
    """The plan without steps whose rows are those that come in, or that only leave out columns which nobody misses."""
    kept: dict[OperatorKey, Step] = {}
    passed_on: dict[OperatorKey, tuple[Input, ...]] = {}
    readers = plan.readers()
    for step in plan.steps:
        inputs = tuple(found for part in step.inputs for found in passed_on.get(part.step, (part,)))
        step = replace(step, inputs=inputs)
        if isinstance(step.kind, Query) and _is_needless(step, step.kind, kept, readers[step.key]):
            passed_on[step.key] = inputs
        else:
            kept[step.key] = step
    return replace(plan, steps=tuple(kept.values()))


def _is_needless(step: Step, query: Query, steps: dict[OperatorKey, Step], readers: Sequence[Step]) -> bool:
    select = query.select
    if select.args.get("where") or select.args.get("laterals"):
        return False
    table = input_table(select).alias
    if not all(isinstance(value, exp.Column) and value.table in ("", table) for value in select.expressions):
        return False
    if any(part.output is not Output.ROWS for part in step.inputs):
        return False
    names = [value.name for value in select.expressions]
    inputs = [steps[part.step].schema for part in step.inputs]
    if names != step.schema.names:
        return False
    return all(step.schema.equals(schema, check_metadata=True) for schema in inputs) or (
        len(inputs) == 1 and _are_fields_of(step.schema, inputs[0]) and all(map(_reads_by_name, readers))
    )


def _are_fields_of(some: pa.Schema, schema: pa.Schema) -> bool:
    return all(
        field.name in schema.names and schema.field(field.name).equals(field, check_metadata=True) for field in some
    )


def _reads_by_name(reader: Step) -> bool:
    """Whether a step picks its columns, and from one input: those of several have one schema."""
    return isinstance(reader.kind, Query | Key) and len(reader.inputs) == 1
