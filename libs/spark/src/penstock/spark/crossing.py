"""Columns that a query only passes on: they stay here, and its rows are put together from them and from what the JVM
computes. `jvm/Crossing.scala` decides which they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark import conversion

_KEY: Final = b"penstock.crossing"  # of the metadata of a result's schema
_NUMBER: Final = pa.field("_row", pa.int32(), nullable=False)
_NUMBERS: Final = pa.array(np.arange(1 << 17, dtype=np.int32))


_Place: TypeAlias = tuple[int, ...]
"""Which column, and which field of it, and of that."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """What of a query's only input goes to the JVM, and how its answer becomes the result."""

    answer: pa.Schema
    """Of what the JVM gives."""
    _input: pa.Schema
    _sent: tuple[int, ...]
    _sent_schema: pa.Schema
    """As it crosses."""
    _passed: tuple[_Place, ...]
    passed_schema: pa.Schema
    """Of the columns that are passed on, each once, in the types in which they would have crossed."""
    _columns: tuple[int, ...]
    """For each of the result, where it is among those that are passed on, followed by the JVM's."""
    _result: pa.Schema
    _is_numbered: bool
    _is_in_order: bool

    @classmethod
    def planned(cls, result: pa.Schema, declared: pa.Schema, wire: pa.Schema) -> Self | None:
        """By what the JVM said of a result; None if all columns cross."""
        if result.metadata is None or _KEY not in result.metadata:
            return None
        said, *rest = result.metadata[_KEY].decode().split(";")
        sent, (is_numbered,), (is_in_order,) = map(_numbers, rest)
        places = [_numbers(place, ".") for place in said.split(",")]
        passed = tuple(sorted({place for place in places if place}))
        computed = [at for at, place in enumerate(places) if not place]
        columns = tuple(
            passed.index(place) if place else len(passed) + computed.index(at) for at, place in enumerate(places)
        )
        number = [_NUMBER] if is_numbered else []
        answer = pa.schema([*(result.field(at) for at in computed), *number])
        passed_schema = pa.schema([_field_at(wire, place) for place in passed])
        every = [*passed_schema, *answer]
        return cls(
            answer=answer,
            _input=declared,
            _sent=sent,
            _sent_schema=pa.schema([*(wire.field(place) for place in sent), *number]),
            _passed=passed,
            passed_schema=passed_schema,
            _columns=columns,
            _result=pa.schema([every[at].with_name(field.name) for at, field in zip(columns, result, strict=True)]),
            _is_numbered=bool(is_numbered),
            _is_in_order=bool(is_in_order),
        )

    @property
    def is_needless(self) -> bool:
        """Whether the JVM has nothing to do: columns are only chosen."""
        return not self.answer.names

    def sent(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What of an input crosses."""
        begin = 0
        for batch in batches:
            conversion.check(batch, self._input)
            columns = [batch.column(place) for place in self._sent]
            if self._is_numbered:
                columns.append(_row_numbers(begin, batch.num_rows))
            yield conversion.cast_columns(columns, self._sent_schema)
            begin += batch.num_rows

    def passed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What of an input does not cross, or not only."""
        return conversion.cast_columns([_column_at(batch, place) for place in self._passed], self.passed_schema)

    def result(self, passed: pa.RecordBatch, answer: pa.RecordBatch) -> pa.RecordBatch:
        """The query's rows."""
        computed = answer.columns
        if self._is_numbered:
            *computed, numbers = computed
            are_all = self._is_in_order and len(numbers) == passed.num_rows
            passed = passed if are_all else passed.take(numbers)
        columns = [*passed.columns, *computed]
        return pa.RecordBatch.from_arrays([columns[at] for at in self._columns], schema=self._result)


def _numbers(text: str, separator: str = ",") -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(separator) if number)


def _field_at(schema: pa.Schema, place: _Place) -> pa.Field:
    at, *fields = place
    found = schema.field(at)
    for field in fields:
        inner = found.type.field(field)
        found = inner.with_nullable(found.nullable or inner.nullable)
    return found


def _column_at(batch: pa.RecordBatch, place: _Place) -> pa.Array:
    at, *fields = place
    return pc.struct_field(batch.column(at), fields) if fields else batch.column(at)


def _row_numbers(begin: int, count: int) -> pa.Array:
    if begin + count <= len(_NUMBERS):
        return _NUMBERS.slice(begin, count)
    return pa.array(np.arange(begin, begin + count, dtype=np.int32))
