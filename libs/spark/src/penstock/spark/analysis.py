"""What Spark says of a query before it is planned: the schema of its rows, and how little of its inputs it reads."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types

# What is read of a value: everything, or the fields at these places of a struct (or of the structs in an array).
Reads: TypeAlias = "Sequence[tuple[int, Reads]] | None"


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a query gives and what it reads.

    A fragment over inputs of the `used` schemas gives the same rows as one over the whole inputs. Each keeps its
    columns' order and metadata, and at least one column, so that rows that nothing is read of can still be counted.
    """

    schema: pa.Schema
    used: Mapping[str, pa.Schema]

    @classmethod
    def of(cls, answer: Mapping[str, Any], inputs: Mapping[str, pa.Schema]) -> Analysis:
        """The JVM's answer about a query over these inputs."""
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(answer["schema"])))
        used = {
            name: pa.schema([_narrow(whole.field(place), inner) for place, inner in reads], whole.metadata)
            for (name, whole), reads in zip(inputs.items(), answer["used"], strict=True)
        }
        return cls(schema, MappingProxyType(used))


def _narrow(field: pa.Field, reads: Reads) -> pa.Field:
    return field if reads is None else field.with_type(_narrow_type(field.type, reads))


def _narrow_type(kind: pa.DataType, reads: Reads) -> pa.DataType:
    assert reads is not None
    if types.is_struct(kind):
        return pa.struct([_narrow(kind.field(place), inner) for place, inner in reads])
    element = _narrow(kind.value_field, reads)
    if types.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return pa.large_list(element) if types.is_large_list(kind) else pa.list_(element)
