from __future__ import annotations

import datetime
import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.operators.difference import changes_schema, difference
from penstock.worker.operators.testing import batch_of, rows_of

NESTED = pa.list_(pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))]))
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("nested", NESTED),
        pa.field("_timestamp", pa.timestamp("us"), nullable=False),
    ]
)


def optional(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), values)


FLOATS = st.sampled_from([0.5, math.nan])
ROW = st.tuples(
    optional(st.sampled_from(["a", "b"])),
    optional(st.integers(0, 1)),
    optional(FLOATS),
    optional(
        st.dictionaries(st.sampled_from(["p", "q"]), optional(st.integers(0, 1)), max_size=1).map(
            lambda d: [*d.items()]
        )
    ),
    optional(
        st.lists(
            optional(
                st.builds(
                    lambda x, y: {"x": x, "y": y},
                    optional(FLOATS),
                    optional(st.lists(optional(st.sampled_from("ab")), max_size=1)),
                )
            ),
            max_size=2,
        )
    ),
    st.integers(0, 9),
)


@settings(deadline=None)
@given(st.lists(ROW, max_size=8), st.lists(ROW, max_size=8), st.booleans(), st.booleans())
def test_the_difference_makes_one_set_of_rows_to_the_other(
    before: list[tuple[object, ...]], after: list[tuple[object, ...]], shared: bool, timed: bool
) -> None:
    if shared:
        after = [*after, *before[: len(before) // 2]]
    changes = difference(batch_of(SCHEMA, before), batch_of(SCHEMA, after), timed=timed)
    changes.validate(full=True)
    assert changes.schema.equals(changes_schema(SCHEMA))
    rows = rows_of([changes])
    operations = [row[-2] for row in rows]
    assert operations == sorted(operations, key=int)  # type: ignore[arg-type]
    retracts, appends = ([(*row[:-2], row[-1]) for row in rows if row[-2] == operation] for operation in (-1, 1))
    compared = slice(None) if timed else slice(-1)
    old, new = (Counter(repr(row[compared]) for row in side) for side in (before, after))  # NaN is written as NaN
    assert Counter(repr(row[compared]) for row in retracts) == old - new
    assert Counter(repr(row[compared]) for row in appends) == new - old
    for row in (*retracts, *appends):
        times = [other[-1] for other in (*before, *after) if repr(other[:-1]) == repr(row[:-1])]
        assert row[-1] in times if timed or not before else row[-1] == max(times)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False, None]),
        (pa.int8(), [1, 2, None]),
        (pa.uint64(), [2**64 - 1, 0, None]),
        (pa.float32(), [0.5, math.nan, None]),
        (pa.decimal128(38, 2), [1, 2, None]),
        (pa.decimal64(10, 2), [1, 2, None]),
        (pa.binary(), [b"\x00", b"", None]),
        (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None]),
        (pa.time64("ns"), [1, 2, None]),
        (pa.duration("us"), [1, 2, None]),
        (pa.month_day_nano_interval(), [(1, 2, 3), (1, 2, 4), None]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
        (pa.list_(pa.int64(), 2), [[1, 2], [1, None], None]),
        (pa.large_list(pa.int64()), [[1, 2], [], None]),
        (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": None}, None]),
        (pa.struct([]), [{}, None]),
        (pa.null(), [None]),
    ],
    ids=str,
)
def test_values_of_every_type_are_told_apart(kind: pa.DataType, values: list[object]) -> None:
    schema = pa.schema([("value", kind), ("_timestamp", pa.timestamp("us"))])
    # The first column is sliced, as the rows of a larger batch are.
    column = pa.array([values[0], *values, *values], kind).slice(1)
    rows = pa.record_batch([column, pa.array([0] * len(column)).view(pa.timestamp("us"))], schema=schema)
    count = len(values)
    same = difference(rows.slice(0, count), rows.slice(count), timed=True)
    assert same.num_rows == 0
    changes = difference(rows.slice(0, count), rows.slice(0, count - 1), timed=True)
    assert changes.column("_op").to_pylist() == [-1]
    assert changes.column("value").to_pylist()[0] is values[-1]
