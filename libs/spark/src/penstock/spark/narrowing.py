"""How little of its inputs a query reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyarrow import types

# What is read of a value: everything, or the fields at these places of a struct (or of the structs in an array).
Reads: TypeAlias = "Sequence[tuple[int, Reads]] | None"


def narrowed(inputs: Mapping[str, pa.Schema], reads: Sequence[Reads]) -> Mapping[str, pa.Schema]:
    """The inputs with what is read of each."""
    return {
        name: pa.schema([_narrow(whole.field(place), inner) for place, inner in fields or ()], whole.metadata)
        for (name, whole), fields in zip(inputs.items(), reads, strict=True)
    }


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
