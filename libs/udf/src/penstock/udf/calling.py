"""Functions as Spark's Python workers call them: arrays in, an array out."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, assert_never

import pyarrow as pa

from penstock.common.udfs import Shape, Style
from penstock.udf import sources
from penstock.udf.hints import Value
from penstock.udf.signatures import Known, definition_of, known, parsed
from penstock.udf.tracebacks import users_traceback

Arrays = tuple[pa.Array, ...]


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """A function that is loaded where it is called; it crosses to other processes as its source."""

    source: str
    file: str
    """What tracebacks call the source."""
    name: str
    shape: Shape
    path: tuple[str, ...] = ()
    """The folders of its dependencies."""
    catches: bool = False
    """Whether it gives a struct of the value and how the call failed, instead of failing."""

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        """An aggregate takes one array, of groups that are lists of structs; a function without parameters takes one of
        anything, which tells how many rows there are."""
        try:
            with sources.dependencies(self.path):
                return _adapted(self)(arrays)
        except Exception:
            sources.note_lines(self.source, self.file)  # another version may have noted its own
            raise


@functools.cache
def loaded(function: SourceFunction) -> Known:
    """The function itself, in this process."""
    definition = definition_of(parsed(function.source), function.name)
    return known(definition, sources.load(function.source, function.file, function.path), function.shape)


@functools.cache
def _adapted(function: SourceFunction) -> Callable[[Arrays], pa.Array]:
    found = loaded(function)
    shape, style = found.signature.shape, found.signature.style
    match shape:
        case Shape.SCALAR if function.catches:
            return _CaughtRows(found)
        case Shape.SCALAR | Shape.TABLE:
            return _Rows(found) if style is Style.PLAIN else _Whole(found)
        case Shape.AGGREGATE:
            return _Groups(found)
        case Shape.ASYNC:
            raise ValueError("an async function is not called by Spark")
        case _:
            assert_never(shape)


class _Rows:
    """Calls a function for each row."""

    def __init__(self, found: Known) -> None:
        self._function = found.function
        self._parameters = found.parameters
        self._is_table = found.signature.shape is Shape.TABLE
        self._results = Results(found)

    def __call__(self, arrays: Arrays) -> pa.Array:
        if not self._parameters:
            return self._results.array([self._function() for _ in range(len(arrays[0]))])
        columns = [values_of(array, value) for array, value in zip(arrays, self._parameters, strict=True)]
        needed = [place for place, value in enumerate(self._parameters) if not value.optional]
        if any(arrays[place].null_count for place in needed):
            results = self._called_with_nulls(columns, needed)
        else:
            results = map(self._function, *columns)
        if self._is_table:
            return self._results.array([None if one is None else [*one] for one in results])
        return self._results.array([*results])

    def _called_with_nulls(self, columns: list[list[Any]], needed: list[int]) -> Iterator[Any]:
        for row in zip(*columns, strict=True):
            yield None if any(row[place] is None for place in needed) else self._function(*row)


class _CaughtRows:
    """Calls a function for each row, and tells of those for which it failed how."""

    def __init__(self, found: Known) -> None:
        self._rows = _Rows(found)
        self._returns = found.signature.returns

    def __call__(self, arrays: Arrays) -> pa.Array:
        with suppress(Exception):  # for some row; one by one they tell for which
            values = self._rows(arrays)
            return pa.StructArray.from_arrays([values, pa.nulls(len(values), pa.string())], ["value", "error"])
        found = [self._called(tuple(array.slice(row, 1) for array in arrays)) for row in range(len(arrays[0]))]
        values = pa.concat_arrays([value for value, _ in found])
        errors = pa.array([error for _, error in found], pa.string())
        return pa.StructArray.from_arrays([values, errors], ["value", "error"])

    def _called(self, arrays: Arrays) -> tuple[pa.Array, str | None]:
        try:
            return self._rows(arrays), None
        except Exception as error:
            return pa.nulls(1, self._returns), users_traceback(error)


class _Whole:
    """Calls a function for all rows of a batch."""

    def __init__(self, found: Known) -> None:
        self._function = found.function
        self._style = found.signature.style
        self._results = Results(found)

    def __call__(self, arrays: Arrays) -> pa.Array:
        result = self._results.whole(self._function(*(_styled(array, self._style) for array in arrays)))
        if len(result) != len(arrays[0]):
            raise ValueError(f"the function gave {len(result)} values for {len(arrays[0])} rows")
        return result


class _Groups:
    """Calls a function for each group."""

    def __init__(self, found: Known) -> None:
        self._function = found.function
        self._parameters = found.parameters
        self._style = found.signature.style
        self._results = Results(found)

    def __call__(self, arrays: Arrays) -> pa.Array:
        (groups,) = arrays
        rows = groups.flatten()
        ends = [0]
        for count in groups.value_lengths().to_pylist():
            ends.append(ends[-1] + (count or 0))
        columns = [rows.field(place) for place in range(rows.type.num_fields)]
        called = self._of_plain if self._style is Style.PLAIN else self._of_arrays
        return self._results.array([*called(columns, ends)])

    def _of_plain(self, columns: list[pa.Array], ends: list[int]) -> Iterator[Any]:
        values = [values_of(column, value) for column, value in zip(columns, self._parameters, strict=True)]
        for begin, end in itertools.pairwise(ends):
            yield self._function(*(column[begin:end] for column in values))

    def _of_arrays(self, columns: list[pa.Array], ends: list[int]) -> Iterator[Any]:
        for begin, end in itertools.pairwise(ends):
            slices = (column.slice(begin, end - begin) for column in columns)
            result = self._function(*(_styled(one, self._style) for one in slices))
            yield result.as_py() if isinstance(result, pa.Scalar) else result


def values_of(array: pa.Array, value: Value) -> list[Any]:
    """Python's own values of an array."""
    values: list[Any] = array.to_pylist()
    if (convert := value.incoming) is not None:
        values = [None if one is None else convert(one) for one in values]
    return values


def _styled(array: pa.Array, style: Style) -> Any:
    return array.to_pandas() if style is Style.PANDAS else array


class Results:
    """Makes an array of what a function gives."""

    def __init__(self, found: Known) -> None:
        self._name = found.signature.name
        self._type = found.signature.returns
        self._convert = found.returns.outgoing

    def array(self, values: list[Any]) -> pa.Array:
        """Of a value for each row; one of another type than the hint says is the function's fault."""
        convert = self._convert
        try:
            given = values if convert is None else [None if one is None else convert(one) for one in values]
            return pa.array(given, self._type)
        except Exception:
            self._blame(values)
            raise

    def whole(self, result: Any) -> pa.Array:
        """Of an array, or a series."""
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            result = pa.Array.from_pandas(result, type=self._type)
        return result if result.type == self._type else result.cast(self._type)

    def _blame(self, values: Iterable[Any]) -> None:
        for value in values:
            try:
                given = value if value is None or self._convert is None else self._convert(value)
                pa.array([given], self._type)
            except Exception:
                shown = repr(value)[:100]
                message = f"{self._name} returned {shown}, a {type(value).__name__}, and its hint says otherwise"
                raise TypeError(message) from None
        return None
