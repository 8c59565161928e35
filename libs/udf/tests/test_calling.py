"""Functions called with arrays give arrays, whatever they take themselves."""

from __future__ import annotations

import pickle
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.common.udfs import Shape
from penstock.udf.calling import SourceFunction


def function(source: str, shape: Shape = Shape.SCALAR, name: str = "f") -> SourceFunction:
    return SourceFunction(source, "f.py", name, shape)


def test_row_with_a_null_that_the_function_does_not_take_has_no_result() -> None:
    added = function("def f(a: int, b: int | None) -> int:\n    return a + (b or 100)")
    assert added(pa.array([1, None, 3]), pa.array([1, 2, None])).to_pylist() == [2, None, 103]


def test_values_of_all_types_come_and_go() -> None:
    source = """
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

@dataclass
class Point:
    x: int
    tags: list[str]
    counts: dict[str, int] | None

def f(at: datetime, day: date, price: Decimal, point: Point) -> Point:
    days = at.date() - day
    return Point(point.x + days.days + int(price), [*point.tags, "z"], {**(point.counts or {}), "n": 1})
"""
    point = pa.struct(
        [("x", pa.int64()), ("tags", pa.list_(pa.string())), ("counts", pa.map_(pa.string(), pa.int64()))]
    )
    at = datetime(2024, 3, 2, 1)  # noqa: DTZ001 - timestamps of SQL have no zone
    arrays = (
        pa.array([at, at], pa.timestamp("us")),
        pa.array([date(2024, 3, 1)] * 2),
        pa.array([Decimal("2.50")] * 2, pa.decimal128(10, 2)),
        pa.array([{"x": 1, "tags": ["a"], "counts": [("k", 2)]}, {"x": 2, "tags": [], "counts": None}], point),
    )
    assert function(source)(*arrays).to_pylist() == [
        {"x": 4, "tags": ["a", "z"], "counts": [("k", 2), ("n", 1)]},
        {"x": 5, "tags": ["z"], "counts": [("n", 1)]},
    ]


def test_decimals_are_rounded_to_their_scale() -> None:
    source = """
from decimal import Decimal
from typing import Annotated
def f(a: int) -> Annotated[Decimal, 10, 2]:
    return Decimal(1) / a
"""
    assert function(source)(pa.array([3, 1])).to_pylist() == [Decimal("0.33"), Decimal("1.00")]


def test_table_function_gives_arrays() -> None:
    words = function(
        "from collections.abc import Iterator\ndef f(a: str) -> Iterator[str]:\n    yield from a.split()", Shape.TABLE
    )
    assert words(pa.array(["a b", "", None])).to_pylist() == [["a", "b"], [], None]


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: list[int], b: list[int]) -> int:\n    return sum(x * y for x, y in zip(a, b))",
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "def f(a: pa.Int64Array, b: pa.Int64Array) -> int:\n    return pc.sum(pc.multiply(a, b)).as_py() or 0",
        "import pandas as pd\nfrom typing import Annotated\n"
        "def f(a: Annotated[pd.Series, int], b: Annotated[pd.Series, int]) -> int:\n    return int((a * b).sum())",
    ],
)
def test_aggregate_is_called_for_each_group(source: str) -> None:
    rows = pa.struct([("_0", pa.int64()), ("_1", pa.int64())])
    groups = [[{"_0": 1, "_1": 2}, {"_0": 3, "_1": 4}], [], [{"_0": 5, "_1": 6}]]
    array = pa.array([[{"_0": 9, "_1": 9}], *groups], pa.list_(rows)).slice(1)
    assert function(source, Shape.AGGREGATE)(array).to_pylist() == [14, 0, 30]


@pytest.mark.parametrize(
    "source",
    [
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "def f(a: pa.Int64Array) -> pa.Int64Array:\n    return pc.multiply(a, 2)",
        "import pandas as pd\nfrom typing import Annotated\n"
        "def f(a: Annotated[pd.Series, int]) -> Annotated[pd.Series, int]:\n    return a * 2",
    ],
)
def test_function_of_arrays_is_called_once_for_a_batch(source: str) -> None:
    assert function(source)(pa.array([1, 2, None])).to_pylist() == [2, 4, None]


def test_function_without_parameters_is_called_for_each_row() -> None:
    assert function("def f() -> int:\n    return 7")(pa.array([0, 0])).to_pylist() == [7, 7]


def test_value_that_is_not_of_the_hint_is_blamed_on_the_function() -> None:
    wrong = function("def f(a: int) -> int:\n    return 'x' if a == 2 else a")
    with pytest.raises(TypeError, match=r"f returned 'x', a str, and its hint says otherwise"):
        wrong(pa.array([1, 2]))


def test_array_of_another_length_is_refused() -> None:
    short = function("import pyarrow as pa\ndef f(a: pa.Int64Array) -> pa.Int64Array:\n    return a[:1]")
    with pytest.raises(ValueError, match="gave 1 values for 2 rows"):
        short(pa.array([1, 2]))


def test_versions_live_side_by_side_and_cross_as_their_source() -> None:
    one, two = (pickle.loads(pickle.dumps(function(f"def f(a: int) -> int:\n    return a + {n}"))) for n in (1, 2))
    assert one(pa.array([1])).to_pylist() == [2]
    assert two(pa.array([1])).to_pylist() == [3]
    assert one(pa.array([1])).to_pylist() == [2]


def test_function_that_catches_tells_how_it_failed_beside_the_other_values() -> None:
    source = "def f(a: int) -> int:\n    return 'x' if a == 9 else 6 // a"
    found = SourceFunction(source, "f.py", "f", Shape.SCALAR, catches=True)(pa.array([1, 0, 9, None, 3])).to_pylist()
    assert [one["value"] for one in found] == [6, None, None, None, 2]
    assert [one["error"] is None for one in found] == [True, False, False, True, True]
    lines = found[1]["error"].splitlines()
    assert lines[1].strip() == 'File "f.py", line 2, in f' and lines[-1].startswith("ZeroDivisionError")
    assert "During handling" not in found[1]["error"]
    assert found[2]["error"].endswith("f returned 'x', a str, and its hint says otherwise")


def test_intervals_come_and_go() -> None:
    doubled = function("from datetime import timedelta\ndef f(a: timedelta) -> timedelta:\n    return a * 2")
    assert doubled(pa.array([timedelta(seconds=1)])).to_pylist() == [timedelta(seconds=2)]


def test_functions_of_one_process_have_their_own_versions_of_a_dependency(tmp_path: Path) -> None:
    source = "from penstock_sample import FACTOR\ndef f(a: int) -> int:\n    import penstock_sample\n"
    source += "    return a * FACTOR * 10 + penstock_sample.FACTOR\n"
    functions = []
    for factor in (3, 5):
        (tmp_path / str(factor)).mkdir()
        (tmp_path / str(factor) / "penstock_sample.py").write_text(f"FACTOR = {factor}\n")
        functions.append(SourceFunction(source, "f.py", "f", Shape.SCALAR, (str(tmp_path / str(factor)),)))
    before = list(sys.path)
    for _ in range(2):
        assert [one(pa.array([2])).to_pylist() for one in functions] == [[63], [105]]
    assert "penstock_sample" not in sys.modules and sys.path == before
