"""A query is understood before it runs; an error names what is wrong, whose fault it is, and its place in the SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.common.errors import ErrorDomain, RetryHint
from penstock.spark import DataError, Engine, EngineMemory, FragmentSpec, Position, SqlError

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("us"))])


def rows(*values: tuple[int | None, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"x": x, "s": s, "at": None} for x, s in values], SCHEMA)


async def test_schema_of_a_query_is_what_it_returns(engine: Engine) -> None:
    schema = await engine.schema_of(
        "SELECT x * 2.5 AS y, s, cast(at AS timestamp_ltz) AS z, count(*) FROM rows GROUP BY ALL", {"rows": SCHEMA}
    )
    assert schema == pa.schema(
        [
            ("y", pa.decimal128(23, 1)),
            ("s", pa.string()),
            ("z", pa.timestamp("us", tz="UTC")),
            pa.field("count(1)", pa.int64(), nullable=False),
        ]
    )


@pytest.mark.parametrize(
    ("sql", "error_class", "line", "column"),
    [
        ("SELECT x,\n  nope FROM rows", "UNRESOLVED_COLUMN.WITH_SUGGESTION", 2, 3),
        ("SELECT x FROM\n\n  nowhere", "TABLE_OR_VIEW_NOT_FOUND", 3, 3),
        ("SELECT x FROM rows\nWHERE )", "PARSE_SYNTAX_ERROR", 2, 7),
        ("SELECT nofunction(x) FROM rows", "UNRESOLVED_ROUTINE", 1, 8),
        ("SELECT 'ü😀', sum(x, x) FROM rows", "WRONG_NUM_ARGS.WITHOUT_SUGGESTION", 1, 14),
        ("SELECT x + array(1) FROM rows", "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", 1, 8),
        ("INSERT INTO t SELECT 1", "PARSE_SYNTAX_ERROR", 1, 1),
    ],
)
async def test_wrong_sql_is_the_users_error_with_its_position(
    engine: Engine, sql: str, error_class: str, line: int, column: int
) -> None:
    with pytest.raises(SqlError) as wrong:
        await engine.schema_of(sql, {"rows": SCHEMA})
    assert wrong.value.error_class == error_class
    assert wrong.value.position == Position(line, column)
    assert wrong.value.sql == sql
    assert wrong.value.domain is ErrorDomain.USER
    assert "== SQL" not in wrong.value.message and "\n" not in wrong.value.message


@pytest.mark.parametrize(
    ("sql", "error_class", "column"),
    [
        ("SELECT 1 / x AS y FROM rows", "DIVIDE_BY_ZERO", 8),
        ("SELECT x, cast(s AS int) AS y FROM rows", "CAST_INVALID_INPUT", 11),
        ("SELECT x + 9223372036854775807 AS y FROM rows", "ARITHMETIC_OVERFLOW", 8),
    ],
)
async def test_row_that_fails_is_the_users_error_and_the_next_run_works(
    engine: Engine, sql: str, error_class: str, column: int
) -> None:
    async with await engine.plan(FragmentSpec(sql, {"rows": SCHEMA})) as fragment:
        for _ in range(3):
            with pytest.raises(DataError) as failed:
                await fragment.run(rows((5, "5"), (0, "five"), (1, "1")))
            assert failed.value.error_class == error_class
            assert failed.value.sql == sql
            assert failed.value.position == Position(1, column)
            assert failed.value.domain is ErrorDomain.USER
            assert failed.value.retry is RetryHint.NEVER
            (result,) = await fragment.run(rows((None, None), (-1, "-1")))
            assert result.num_rows == 2


async def test_failure_in_the_middle_of_a_large_input_does_not_hang(engine: Engine) -> None:
    numbers = pa.record_batch({"x": pa.array([1] * 499_999 + [0], pa.int64())})
    async with await engine.plan(FragmentSpec("SELECT 1 / x AS y FROM rows", {"rows": numbers.schema})) as fragment:
        for batches in ([numbers], [numbers.slice(499_999), numbers, numbers]):
            with pytest.raises(DataError, match="Division by zero"):
                await fragment.run(batches)
        (result,) = await fragment.run(numbers.slice(0, 10))
    assert result.num_rows == 10


async def test_run_beyond_the_memory_of_the_engine_fails_alone(engine: Engine) -> None:
    sql = "SELECT repeat('y', 20000000) AS s FROM rows"
    schema = pa.schema([("x", pa.int64())])
    batch = pa.record_batch({"x": pa.array([1] * 60, pa.int64())})
    async with await engine.plan(FragmentSpec(sql, {"rows": schema})) as fragment:
        with pytest.raises(EngineMemory) as failed:
            await fragment.run(batch)
        assert failed.value.retry is RetryHint.BACKOFF
        (result,) = await fragment.run(batch.slice(0, 1))
    assert result.num_rows == 1
