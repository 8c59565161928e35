"""What hints mean to SQL, and where in the source what is wrong with them is."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.common.udfs import Shape, Signature, Style
from penstock.udf import sources
from penstock.udf.signatures import Refused, definition_of, known, parsed

HEAD = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, NewType, Optional

import pandas as pd
import pyarrow as pa

@dataclass
class Point:
    x: int
    name: str | None

UserId = NewType("UserId", int)
"""
POINT = pa.struct([("x", pa.int64()), ("name", pa.string())])


def signature(source: str, shape: Shape | None = None) -> Signature:
    definition = definition_of(parsed(source), None)
    return known(definition, sources.load(source, "f.py"), shape).signature


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("bool", pa.bool_()),
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("str", pa.string()),
        ("bytes", pa.binary()),
        ("Decimal", pa.decimal128(38, 10)),
        ("Annotated[Decimal, 10, 2]", pa.decimal128(10, 2)),
        ("datetime", pa.timestamp("us")),
        ("date", pa.date32()),
        ("timedelta", pa.duration("us")),
        ("UserId", pa.int64()),
        ("list[int | None]", pa.list_(pa.field("element", pa.int64()))),
        ("dict[str, float]", pa.map_(pa.string(), pa.float64())),
        ("Point", POINT),
        ("list[Point]", pa.list_(pa.field("element", POINT))),
    ],
)
def test_hint_is_a_type_of_sql(hint: str, expected: pa.DataType) -> None:
    found = signature(f"{HEAD}\ndef f(value: {hint}, other: Optional[{hint}]) -> {hint} | None: ...\n")
    assert found.parameters.types == [expected, expected]
    assert [field.nullable for field in found.parameters] == [False, True]
    assert found.returns == expected
    assert (found.shape, found.style) == (Shape.SCALAR, Style.PLAIN)


@pytest.mark.parametrize(
    ("head", "shape", "style"),
    [
        ("def f(a: int) -> int", Shape.SCALAR, Style.PLAIN),
        ("def f(a: str) -> Iterator[str]", Shape.TABLE, Style.PLAIN),
        ("async def f(a: int) -> str", Shape.ASYNC, Style.PLAIN),
        ("def f(a: pa.Int64Array) -> pa.DoubleArray", Shape.SCALAR, Style.ARROW),
        ("def f(a: Annotated[pa.Array, int]) -> Annotated[pa.Array, float]", Shape.SCALAR, Style.ARROW),
        ("def f(a: Annotated[pd.Series, str]) -> Annotated[pd.Series, int]", Shape.SCALAR, Style.PANDAS),
        ("def f(a: Annotated[pa.Array, int]) -> float", Shape.AGGREGATE, Style.ARROW),
        ("def f(a: Annotated[pd.Series, int]) -> float", Shape.AGGREGATE, Style.PANDAS),
    ],
)
def test_hints_tell_what_kind_of_function_it_is(head: str, shape: Shape, style: Style) -> None:
    found = signature(f"{HEAD}\n{head}: ...\n")
    assert (found.shape, found.style) == (shape, style)


def test_aggregate_of_plain_values_takes_lists_of_them() -> None:
    found = signature("def f(a: list[int], b: list[str | None]) -> float: ...", Shape.AGGREGATE)
    assert found.parameters == pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])


def test_hints_that_are_not_evaluated_mean_the_same() -> None:
    found = signature("from __future__ import annotations\ndef f(a: int | None) -> list[str]: ...")
    assert found.returns == pa.list_(pa.field("element", pa.string()))


@pytest.mark.parametrize(
    ("source", "message", "place"),
    [
        ("def f(a) -> int: ...", "parameter a has no type", (1, 7)),
        ("def f(a: int): ...", "f does not say what it returns", (1, 1)),
        ("def f(a: complex) -> int: ...", "complex is no type of SQL", (1, 7)),
        ("def f(a: int | str) -> int: ...", "int | str is of several types", (1, 7)),
        ("def f(*a: int) -> int: ...", "parameter a: SQL gives each parameter a value by its place", (1, 8)),
        ("def f(a: int) -> int\n  return 1", "this is not Python: expected ':'", (1, 21)),
        ("import pyarrow as pa\ndef f(a: pa.Array) -> int: ...", "pa.Array does not say what is in it", (2, 7)),
        ("def f() -> int: ...\ndef g() -> int: ...", "the source defines several functions: f, g", (2, 1)),
        ("x = 1", "the source defines no function", None),
        ("def f(a: nothing) -> int: ...", "name 'nothing' is not defined", None),
    ],
)
def test_what_is_wrong_is_told_with_its_place(source: str, message: str, place: tuple[int, int] | None) -> None:
    with pytest.raises((Refused, NameError)) as raised:
        signature(source)
    assert message in str(raised.value)
    if place is not None and isinstance(raised.value, Refused):
        assert raised.value.place is not None
        assert (raised.value.place.line, raised.value.place.column) == place
