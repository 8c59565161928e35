"""Newline-delimited JSON: lines to rows at the speed of Arrow's reader, with the meaning of `json_line`.

A block is read whole. Lines that a lenient reader could misread are kept from it; when it refuses the rest, the block
is divided until the lines that are to blame are found, so that each is refused alone, with its own reason. With a
parser of the engine, only the lines that this one left come here, or all when they are many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.connectors.base import LineParsers, ParsedLines
from penstock.connectors.formats.base64 import decode_column
from penstock.connectors.formats.json_encoder import JsonEncoder, TimestampFormat
from penstock.connectors.formats.json_line import BadLine, Path, RowReader, TooDeep, is_json, times_of
from penstock.connectors.formats.line_blocks import FileBlock
from penstock.connectors.formats.lines import Lines, Mask, Positions
from penstock.connectors.formats.parsed import BlockParser

__all__ = ["Decoded", "JsonDecoder", "JsonEncoder", "Rejected", "TimestampFormat"]

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_PAYLOAD_BYTES: Final = 64 * 1024

_FEW_LINES: Final = 16
"""What is as fast line by line as in one call of Arrow's reader."""
_PARTS: Final = 8
"""Into how many parts a block is divided that Arrow's reader refused."""
_MANY_LINES: Final = 2048
"""What is divided without a look at which line is to blame: reading up to each of them would take too long."""
_DENSE_LINES: Final = 64
"""How many lines are looked at one by one when bad ones come close to each other."""
_ROW: Final = re.compile(r"in row (\d+)$")
_NO_COLUMN: Final = pa.field("\x00", pa.null())
"""Stands for the columns when none is wanted, so that the reader still counts rows."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that is no row of the table."""

    line: int
    reason: str
    payload: bytes
    """The line, cut at a limit."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a block of lines came to."""

    rows: pa.RecordBatch
    row_lines: Positions
    """Of each row the number of its line."""
    rejected: tuple[Rejected, ...]
    line_count: int
    """Empty lines included, which are neither rows nor refused."""
    block: bytes | FileBlock
    first_line: int

    @property
    def row_offsets(self) -> Positions:
        """Of each row the position of its line in the block, in bytes."""
        offsets: Positions = Lines.split(_content(self.block)).starts[self.row_lines - self.first_line]
        return offsets


class _Refused(Exception):
    """Arrow's reader did not take a block."""

    def __init__(self, row: int | None = None) -> None:
        super().__init__()
        self.row = row
        """The row that is to blame; None when it is not known."""


@dataclass(slots=True)
class _Outcome:
    """What is known of a block so far, in pieces of any order."""

    pieces: list[tuple[Positions, pa.RecordBatch]] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)


class JsonDecoder:
    """Decodes blocks of complete lines; used by one thread at a time."""

    def __init__(
        self, schema: pa.Schema, *, max_line_bytes: int = MAX_LINE_BYTES, parsers: LineParsers | None = None
    ) -> None:
        """Only the columns of the schema are decoded, inside structs too; raises UnsupportedType."""
        self._schema = schema
        self._max_line_bytes = max_line_bytes
        self._numeric_timestamps: set[Path] = set()
        self._reader = RowReader(schema, self._numeric_timestamps)
        self._vectorised = len(set(schema.names)) == len(schema) and not any(map(_has_json, schema))
        parser = parsers.line_decoder(schema, max_line_bytes) if parsers is not None and self._vectorised else None
        self._parser = None if parser is None else BlockParser(parser)

    def decode(self, block: bytes | FileBlock, first_line: int = 1) -> Decoded:
        """The rows of a block, and the lines that are none."""
        parsed = None if self._parser is None else self._parser.parse(block)
        if parsed is not None:
            return self._complete(block, parsed, first_line)
        lines, outcome = Lines.split(_content(block)), _Outcome()
        too_long = lines.lengths() > self._max_line_bytes
        odd = lines.odd() & ~too_long
        self._decode_together(lines, np.flatnonzero(lines.filled() & ~odd & ~too_long), outcome)
        self._decode_each(lines, np.flatnonzero(odd), outcome)
        outcome.rejected += [(int(index), self.too_long) for index in np.flatnonzero(too_long)]
        return self._merge(lines, outcome, first_line)

    def close(self) -> None:
        """Gives back what the decoder holds outside this process."""
        if self._parser is not None:
            self._parser.close()

    def _complete(self, block: bytes | FileBlock, parsed: ParsedLines, first_line: int) -> Decoded:
        """What a parser found, with the lines that it left."""
        rows, line_count, left = parsed
        indexes, odd = np.arange(line_count), left.astype(np.int64)
        if not len(odd):
            return Decoded(rows, indexes + first_line, (), line_count, block, first_line)
        lines, outcome = Lines.split(_content(block)), _Outcome([(np.delete(indexes, odd), rows)])
        too_long = lines.lengths()[odd] > self._max_line_bytes
        self._decode_each(lines, odd[~too_long], outcome)
        outcome.rejected += [(int(index), self.too_long) for index in odd[too_long]]
        return self._merge(lines, outcome, first_line)

    @property
    def too_long(self) -> str:
        """The reason why a line over the limit is refused."""
        return f"longer than {self._max_line_bytes} bytes"

    def _merge(self, lines: Lines, outcome: _Outcome, first_line: int) -> Decoded:
        match outcome.pieces:
            case []:
                empty = [pa.array([], column.type) for column in self._schema]
                indexes, batch = np.zeros(0, np.int64), _batch(empty, self._schema, 0)
            case [(indexes, batch)]:
                pass
            case pieces:
                indexes = np.concatenate([indexes for indexes, _ in pieces])
                order = np.argsort(indexes, kind="stable")
                indexes, batch = indexes[order], pa.concat_batches([rows for _, rows in pieces]).take(pa.array(order))
        rejected = tuple(
            Rejected(first_line + index, reason, lines[index][:MAX_PAYLOAD_BYTES])
            for index, reason in sorted(outcome.rejected)
        )
        return Decoded(batch, indexes + first_line, rejected, len(lines), lines.data, first_line)

    def _decode_together(self, lines: Lines, indexes: Positions, outcome: _Outcome) -> None:
        parts = [indexes]
        while parts:
            part = parts.pop()
            if len(part) <= _FEW_LINES or not self._vectorised:
                self._decode_each(lines, part, outcome)
                continue
            try:
                self._decode_block(lines, part, outcome)
            except _Refused as refused:
                parts += reversed(self._divide(lines, part, refused.row, outcome))

    def _decode_block(self, lines: Lines, indexes: Positions, outcome: _Outcome) -> None:
        rows = self._read(lines.join(indexes), len(indexes))
        bad = _null_violations(rows)
        if bad is not None:
            self._decode_each(lines, indexes[bad], outcome)
            rows, indexes = rows.filter(pa.array(~bad)), indexes[~bad]
        outcome.pieces.append((indexes, rows))

    def _divide(self, lines: Lines, part: Positions, row: int | None, outcome: _Outcome) -> list[Positions]:
        """What is left to decode of a part that was refused."""
        if row is None or row >= len(part) or len(part) > _MANY_LINES:
            return list(np.array_split(part, _PARTS))
        if row < _FEW_LINES:
            self._decode_each(lines, part[:_DENSE_LINES], outcome)
            return [part[_DENSE_LINES:]]
        self._decode_each(lines, part[row : row + 1], outcome)
        return [part[:row], part[row + 1 :]]

    def _decode_each(self, lines: Lines, indexes: Positions, outcome: _Outcome) -> None:
        taken, values = [], []
        for index in indexes.tolist():
            line = lines[index]
            try:
                values.append(self._reader.read(line))
                taken.append(index)
            except TooDeep as error:
                self._decode_deep(line, index, str(error), outcome)
            except BadLine as error:
                if line.strip(b" \t\r"):
                    outcome.rejected.append((index, str(error)))
        if taken:
            columns = [pa.array([row[i] for row in values], column.type) for i, column in enumerate(self._schema)]
            outcome.pieces.append((np.array(taken, np.int64), _batch(columns, self._schema, len(taken))))

    def _decode_deep(self, line: bytes, index: int, reason: str, outcome: _Outcome) -> None:
        """A line too deep for Python need not be so for Arrow's reader, which takes it among good neighbours."""
        try:
            if not self._vectorised or Lines.split(line).odd()[0]:
                raise _Refused
            rows = self._read(line, 1)
            if _null_violations(rows) is not None:
                raise _Refused
            outcome.pieces.append((np.array([index]), rows))
        except _Refused:
            outcome.rejected.append((index, reason))

    def _read(self, data: bytes, count: int) -> pa.RecordBatch:
        columns = [_parsed_field(column, (column.name,), self._numeric_timestamps) for column in self._schema]
        try:
            table = pa.json.read_json(
                pa.BufferReader(data),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pa.json.ParseOptions(
                    explicit_schema=pa.schema(columns or [_NO_COLUMN]), unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != count:
                raise _Refused
            arrays = [_converted(table.column(c.name).combine_chunks(), c.type) for c in self._schema]
        except pa.ArrowInvalid as error:
            match = _ROW.search(str(error))
            raise _Refused(int(match[1]) if match else None) from None
        return _batch(arrays, self._schema, count)


def _content(block: bytes | FileBlock) -> bytes:
    return block if isinstance(block, bytes) else block.read()


def _batch(arrays: list[Any], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """A batch that knows how many rows it has even without columns."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _has_json(column: pa.Field) -> bool:
    kind = column.type
    if pa.types.is_struct(kind):
        return any(map(_has_json, kind)) or len({member.name for member in kind}) != kind.num_fields
    return _has_json(kind.value_field) if pa.types.is_list(kind) else is_json(column)


def _parsed_field(column: pa.Field, path: Path, numeric_timestamps: Iterable[Path]) -> pa.Field:
    """What Arrow's reader is asked for: the column, or what it can be made of."""
    kind = column.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_parsed_field(member, (*path, member.name), numeric_timestamps) for member in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_parsed_field(kind.value_field, (*path, "[]"), numeric_timestamps))
    elif pa.types.is_timestamp(kind) and path in numeric_timestamps:
        kind = pa.int64()
    elif pa.types.is_date(kind) or pa.types.is_time(kind) or _is_binary(kind) or pa.types.is_large_string(kind):
        kind = pa.string()
    return pa.field(column.name, kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _converted(array: Any, kind: pa.DataType) -> Any:
    """What Arrow's reader gave, as the column's type; raises where the reader is more lenient than a line is."""
    if pa.types.is_floating(kind) and pc.any(pc.is_inf(array)).as_py():
        raise _Refused
    if pa.types.is_decimal(kind):
        array.validate(full=True)  # the reader gives decimals of more digits than their type has
    if pa.types.is_struct(kind):
        members = [_converted(array.field(i), member.type) for i, member in enumerate(kind)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _converted(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    if array.type == kind:
        return array
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("ms", kind.tz)).cast(kind)
    if pa.types.is_time(kind):
        return times_of(array)
    if _is_binary(kind):
        return decode_column(array, kind)
    return array.cast(kind)


def _null_violations(rows: pa.RecordBatch) -> Mask | None:
    """Which rows have a null where the schema has none; None when no row has."""
    bad = np.zeros(rows.num_rows, np.bool_)
    for column, array in zip(rows.schema, rows.columns, strict=True):
        _mark_nulls(column, array, np.ones(len(array), np.bool_), bad)
    return bad if bad.any() else None


def _mark_nulls(column: pa.Field, array: Any, present: Mask, bad: Mask) -> None:
    valid = np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_)
    if not column.nullable:
        bad |= present & ~valid
    if pa.types.is_struct(column.type):
        for i, member in enumerate(column.type):
            _mark_nulls(member, array.field(i), present & valid, bad)
    elif pa.types.is_list(column.type) and array.values.null_count and not column.type.value_field.nullable:
        raise _Refused
