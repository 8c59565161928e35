"""The reference checker itself sees every kind of wrong result, and no wrong in a right one."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from reference.cases import DATASETS, cases
from reference.comparison import Broken, appends_of_keys, difference, fold, rows_of
from reference.data import BOUND, dataset
from reference.oracles import ask_duckdb
from reference.queries import Oracle, queries

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("_op", pa.string()), ("_timestamp", pa.timestamp("us"))])
AT = datetime(2024, 3, 1)  # noqa: DTZ001 - event times have no zone


def changes(*rows: tuple[str | None, int, int]) -> pa.RecordBatch:
    named = [(user, n, "append" if change > 0 else "retract", AT) for user, n, change in rows]
    columns = zip(*named, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def test_rows_are_compared_in_any_order() -> None:
    rows = [("a", 1, 0.1 + 0.2), (None, 2, None), ("a", 1, 5.0)]
    assert difference(rows, [("a", 1, 5.0), ("a", 1, 0.3), (None, 2, None)]) is None


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([("a", 1)], [("a", 1), ("a", 1)]),
        ([("a", 1), ("a", 1)], [("a", 1)]),
        ([("a", 1)], [("a", 2)]),
        ([("a", 0.3)], [("a", 0.3000001)]),
        ([("a", None)], [("a", 0.0)]),
        ([("a", 1.0), ("a", 2.0)], [("a", 1.0), ("a", 1.0)]),
        ([("a", 1)], [("a",)]),
        ([("a", (1, 2))], [("a", (2, 1))]),
        ([(True,)], [(1,)]),
        ([], [("a",)]),
    ],
)
def test_a_difference_is_seen(actual: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> None:
    assert difference(actual, expected) is not None


def test_a_difference_names_the_first_rows() -> None:
    problem = difference([("a", number) for number in range(20)], [("b", 7)])
    assert problem is not None
    assert problem.splitlines()[:3] == ["20 rows instead of 1", "1 missing:", "  ('b', 7)"]
    assert "20 not expected:" in problem and len(problem.splitlines()) == 9


def test_columns_that_are_approximate_may_be_a_little_off() -> None:
    assert difference([("a", 95)], [("a", 100)], approximate=[1]) is None
    assert difference([("a", 70)], [("a", 100)], approximate=[1]) is not None


def test_types_of_both_engines_have_the_same_values() -> None:
    ours = pa.table({"i": pa.array([timedelta(minutes=1)]), "d": pa.array([Decimal("1.50")]), "s": [{"a": [1, None]}]})
    with duckdb.connect() as connection:
        theirs = connection.sql("SELECT INTERVAL '1 minute', 1.5::DOUBLE, {'a': [1, NULL]}").to_arrow_table()
    assert difference(rows_of([ours]), rows_of([theirs])) is None


def test_changes_leave_what_was_not_taken_back() -> None:
    batches = [changes(("a", 1, 1), ("b", 1, 1)), changes(("a", 1, -1), ("a", 2, 1))]
    assert sorted(fold(batches)) == [("a", 2), ("b", 1)]
    assert appends_of_keys(batches, ["user"]) == {("a",): 2, ("b",): 1}
    assert appends_of_keys(batches, []) == {(): 3}


def test_taking_back_what_is_not_there_is_seen() -> None:
    with pytest.raises(Broken, match="'a', 2"):
        fold([changes(("a", 1, 1)), changes(("a", 2, -1), ("a", 2, 1))])


@pytest.mark.parametrize("rows", set(DATASETS.values()))
def test_no_row_of_the_data_is_beyond_the_bound(rows: int) -> None:
    out_of_order = 0
    for table in ("events", "refunds", "ancient"):
        for partition in dataset(rows).partitions(table):
            latest = datetime.min  # noqa: DTZ901 - event times have no zone
            for ts in partition["ts"].to_pylist():
                assert latest - ts <= BOUND
                out_of_order += ts < latest
                latest = max(latest, ts)
    assert out_of_order > rows // 4


def test_there_is_an_answer_to_every_question() -> None:
    """A question whose answer is empty proves little, and is meant to be so."""
    asked = [query for query in queries() if query.oracle is Oracle.DUCKDB]
    empty = [
        query.name for query in asked if not ask_duckdb(query.oracle_sql, dataset(min(DATASETS.values()))).num_rows
    ]
    assert len(queries()) >= 90
    assert empty == ["not_in_query_of_a_null", "tumble_of_nothing", "updating_of_nothing"]


def test_a_sample_has_every_cut() -> None:
    chosen = cases()
    assert {case.cut.parallelism for case in chosen} == {1, 2, 3}
    assert {case.cut.batch_rows for case in chosen} == {1, 7, 1000, 100_000}
