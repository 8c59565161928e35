"""What changed between two sets of rows: those that went, as retracts, and those that came, as appends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from penstock.common.program import OP_COLUMN
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE
from penstock.worker.state.index import Int64s
from penstock.worker.state.times import microseconds

_OP = pa.field(OP_COLUMN, pa.int8(), nullable=False)
_APPEND, _RETRACT = 1, -1


def changes_schema(results: pa.Schema) -> pa.Schema:
    """The schema of changes of result rows, whose last column is their event time."""
    *columns, timestamp = results
    return pa.schema([*columns, _OP, timestamp])


def appends(results: pa.RecordBatch) -> pa.RecordBatch:
    """Result rows that come."""
    return _as_changes(results, np.full(results.num_rows, _APPEND, np.int8))


def difference(before: pa.RecordBatch, after: pa.RecordBatch, *, timed: bool) -> pa.RecordBatch:
    """The changes that make `before` to `after`, the retracts first.

    Rows are compared by their columns and as often as they are there: null equals null, NaN equals NaN. `timed` rows
    are of an event time, which counts as well; for others it says when they last changed, and of equal ones the latest
    is taken.
    """
    if not before.num_rows:
        return appends(after)
    rows = pa.concat_batches([before, after])
    ids = row_ids(rows.columns if timed else rows.columns[:-1], rows.num_rows)
    old, new = ids[: before.num_rows], ids[before.num_rows :]
    surplus = np.bincount(new, minlength=rows.num_rows) - np.bincount(old, minlength=rows.num_rows)
    gone = np.flatnonzero(_occurrences(old) < -surplus[old])
    come = np.flatnonzero(_occurrences(new) < surplus[new]) + before.num_rows
    operations = np.repeat(np.array([_RETRACT, _APPEND], np.int8), [gone.size, come.size])
    chosen = np.concatenate([gone, come])
    changes = rows.take(pa.array(chosen))
    return _as_changes(changes, operations, _latest(ids, rows)[chosen])


def _latest(ids: Int64s, rows: pa.RecordBatch) -> Int64s:
    """The latest event time among the rows that equal each."""
    times = microseconds(rows.column(TIMESTAMP_COLUMN))
    latest = np.full(times.size, np.iinfo(np.int64).min)
    np.maximum.at(latest, ids, times)
    return latest[ids]


def _as_changes(rows: pa.RecordBatch, operations: npt.NDArray[np.int8], times: Int64s | None = None) -> pa.RecordBatch:
    *columns, timestamp = rows.columns
    if times is not None:
        timestamp = pa.array(times).view(TIMESTAMP_TYPE)
    return pa.RecordBatch.from_arrays([*columns, pa.array(operations), timestamp], schema=changes_schema(rows.schema))


def _occurrences(ids: Int64s) -> Int64s:
    """How often the same id came before each."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if ids.size else ids
    before = np.empty_like(ids)
    before[order] = np.arange(ids.size) - np.repeat(begins, np.diff(np.append(begins, ids.size)))
    return before


def row_ids(columns: list[pa.Array], rows: int) -> Int64s:
    """A number from 0 for each row, the same for equal rows."""
    return _dense(_packed([_codes(column) for column in columns], rows))


def _codes(column: pa.Array) -> Int64s:
    """A number for each value, the same for equal values.

    Arrow tells only flat values apart: a struct is made flat as the codes of its fields in a row, a list as those of
    its elements.
    """
    kind = column.type
    if types.is_struct(kind):
        fields = [_codes(field) for field in column.flatten()]
        return _dense(
            _packed([column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64), *fields], len(column))
        )
    if types.is_map(kind):
        entries = _packed([_codes(column.keys), _codes(column.items)], len(column.keys))
        return _list_codes(column, _dense(entries))
    if types.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_field))
    if types.is_list(column.type) or types.is_large_list(column.type):
        return _list_codes(column, _codes(column.values))
    if types.is_dictionary(kind):
        return _codes(column.dictionary_decode())
    if types.is_int64(kind) and not column.null_count:
        numbers: Int64s = column.to_numpy()
        return numbers
    if types.is_decimal(kind) and kind.bit_width < 128:
        column = column.cast(pa.decimal128(kind.precision, kind.scale))
    if types.is_interval(kind):
        column = column.view(pa.binary(kind.bit_width // 8))
    return _dense(column)


def _list_codes(lists: pa.Array, elements: Int64s) -> Int64s:
    """The codes of lists of which the codes of all elements are known."""
    offsets = lists.offsets.to_numpy().astype(np.int64) * elements.itemsize
    validity = pa.array(~lists.is_null().to_numpy(zero_copy_only=False)) if lists.null_count else None
    bits = None if validity is None else validity.buffers()[1]
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(elements))]
    return _dense(pa.Array.from_buffers(pa.large_binary(), len(lists), buffers))


def _packed(codes: list[Int64s], rows: int) -> pa.Array:
    """Codes side by side as one value for each row."""
    side_by_side = np.stack(codes, axis=1) if codes else np.zeros((rows, 1), np.int64)
    width = side_by_side.shape[1] * side_by_side.itemsize
    return pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(side_by_side)])


def _dense(values: pa.Array) -> Int64s:
    """A number from 0 for each value, in the order in which values are first seen."""
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers: Int64s = encoded.indices.to_numpy().astype(np.int64)
    return numbers
