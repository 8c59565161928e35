"""Rows gathered from several batches into one.

Arrow takes rows of one batch at a time, at some ten microseconds a column however few they are, and then copies what
it took of each into one. Values of a fixed width are copied by numpy instead, straight to where they belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from penstock.worker.state.index import Int64s

Values: TypeAlias = npt.NDArray[np.void]
Columns: TypeAlias = Sequence[Values | pa.Array]
"""Values where they are, or a column that has nulls or values of other kinds."""


def columns_of(rows: pa.RecordBatch) -> Columns:
    """The columns of a batch, to gather rows from."""
    return [column if (values := _values(column)) is None else values for column in rows.columns]


def gathered(parts: Sequence[tuple[Columns, Int64s]], schema: pa.Schema) -> pa.RecordBatch:
    """The rows at some places of each part, as one batch."""
    columns = [
        _gathered([(columns[number], places) for columns, places in parts], field.type)
        for number, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _gathered(parts: Sequence[tuple[Values | pa.Array, Int64s]], kind: pa.DataType) -> pa.Array:
    if not parts or not all(isinstance(column, np.ndarray) for column, _ in parts):
        taken = [_array(column, kind).take(pa.array(places)) for column, places in parts]
        return pa.concat_arrays(taken) if taken else pa.nulls(0, kind)
    rows = sum(places.size for _, places in parts)
    width = kind.bit_width // 8
    buffer = pa.allocate_buffer(rows * width)
    gathered = np.frombuffer(buffer, np.dtype((np.void, width)), rows)
    begin = 0
    for values, places in parts:
        end = begin + places.size
        # Places are known to be within bounds: to have them checked would make a copy of what is taken.
        values.take(places, out=gathered[begin:end], mode="clip")
        begin = end
    return pa.Array.from_buffers(kind, rows, [None, buffer], null_count=0)


def _values(column: pa.Array) -> Values | None:
    """The values of a column where they are, if they have a fixed width and none is null."""
    kind = column.type
    if not (types.is_primitive(kind) or types.is_decimal(kind)) or types.is_boolean(kind) or column.null_count:
        return None
    width = kind.bit_width // 8
    return np.frombuffer(column.buffers()[1], np.dtype((np.void, width)), len(column), column.offset * width)


def _array(column: Values | pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, np.ndarray):
        return pa.Array.from_buffers(kind, column.size, [None, pa.py_buffer(column)], null_count=0)
    return column
