"""Cuts what sources produce down to what queries read, inside structs too; a table that several read is one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyarrow import types as arrow

from penstock.common.program import Output
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Key, Plan, Query, Scan, Step
from penstock.connectors.base import TIMESTAMP_COLUMN


async def prune_sources(plan: Plan, analyst: Analyst) -> Plan:
    """The plan with narrower sources; the event time always stays."""
    readers = plan.readers()
    steps = [
        await _narrowed(step, step.kind, readers[step.key], analyst) if isinstance(step.kind, Scan) else step
        for step in plan.steps
    ]
    return replace(plan, steps=tuple(steps))


async def _narrowed(step: Step, scan: Scan, readers: Sequence[Step], analyst: Analyst) -> Step:
    used: list[pa.Schema] = []
    for reader in readers:
        if not any(part.step == step.key and part.output is Output.ROWS for part in reader.inputs):
            continue
        if not isinstance(reader.kind, Query | Key) or len(reader.inputs) > 1:
            return step  # the other inputs have this schema too
        used.append(await analyst.used_by(reader.kind.select, step.schema))
    fields = [
        merged
        for field in step.schema
        if (merged := _merged(field, [schema.field(field.name) for schema in used if field.name in schema.names]))
        or field.name == TIMESTAMP_COLUMN
    ]
    schema = pa.schema([field if field is not None else step.schema.field(TIMESTAMP_COLUMN) for field in fields])
    metadata = {name: key for name, key in scan.metadata.items() if name in schema.names}
    return replace(step, kind=replace(scan, metadata=metadata), schema=schema)


def _merged(whole: pa.Field, parts: Sequence[pa.Field]) -> pa.Field | None:
    """What of a field somebody reads; None when nobody reads anything."""
    if not parts:
        return None
    if any(part.type == whole.type for part in parts):
        return whole
    return whole.with_type(_merged_type(whole.type, [part.type for part in parts]))


def _merged_type(whole: pa.DataType, parts: Sequence[pa.DataType]) -> pa.DataType:
    if arrow.is_struct(whole):
        inner = [
            _merged(field, [part.field(field.name) for part in parts if part.get_field_index(field.name) >= 0])
            for field in whole
        ]
        return pa.struct([field for field in inner if field is not None])
    if arrow.is_list(whole):
        return pa.list_(_merged(whole.value_field, [part.value_field for part in parts]))
    return whole
