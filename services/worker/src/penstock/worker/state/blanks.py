"""Values that mean nothing, of any type: null, but for what must not be null inside of them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types

_ZEROS: Final = pa.py_buffer(bytes(64))


def blanks(count: int, kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
    """So many of them. A null struct still has fields, and those that are never null are zeros."""
    if types.is_struct(kind):
        fields = list(kind)
        parts = [blanks(count, field.type, nullable=field.nullable) for field in fields]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(np.full(count, nullable)))
    if nullable:
        return pa.nulls(count, kind)
    return pa.repeat(_zero(kind), count)


def _zero(kind: pa.DataType) -> pa.Scalar:
    if types.is_nested(kind):
        return pa.scalar([], kind)
    buffers = [None, _ZEROS, _ZEROS] if types.is_string(kind) or types.is_binary(kind) else [None, _ZEROS]
    return pa.Array.from_buffers(kind, 1, buffers)[0]
