"""Expressions mean what they mean in Postgres, on real rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.common.program import INPUT, ArrowValue, Program
from penstock.compiler import compile_query
from penstock.spark import DataError, Engine, FragmentSpec

moment = datetime.fromisoformat

TABLE = """CREATE TABLE t (
  i INT, n INT, big BIGINT, d DOUBLE, s TEXT, ts TIMESTAMP, tags TEXT[], m MAP<TEXT, INT>, j JSON,
  st STRUCT<a INT, b STRUCT<c TEXT>>
) WITH (connector = 'single_file', path = 'x', type = 'source');
"""
ROW: dict[str, object] = {
    "i": 7,
    "n": None,
    "big": 9_000_000_000,
    "d": 2.5,
    "s": "Ab.cd'\\",
    "ts": moment("2023-09-18T14:23:10.250000"),
    "tags": ["x", "y"],
    "m": [("k", 1)],
    "j": '{"a": {"b": [10, "ten"], "c d": null}, "t": "text", "n": 5}',
    "st": {"a": 1, "b": {"c": "deep"}},
    "_timestamp": moment("2020-01-01T00:00:00"),
}

EXPRESSIONS: dict[str, object] = {
    # numbers
    "i / 2": 3,
    "-i / 2": -3,
    "i / 2.0": Decimal("3.5"),
    "i % 4": 3,
    "-i % 4": -3,
    "i::DOUBLE / 2": 3.5,
    "2 ^ 3": 8.0,
    "i + n": None,
    # text
    "s || '!'": "Ab.cd'\\!",
    r"'a\nb'": "a\\nb",
    r"E'a\nb'": "a\nb",
    "$$it's$$": "it's",
    "'it''s'": "it's",
    "upper(s)": "AB.CD'\\",
    "strpos(s, 'c')": 4,
    "position('c' IN s)": 4,
    "substring(s FROM 2 FOR 3)": "b.c",
    "trim(BOTH 'A' FROM 'AxA')": "x",
    "string_to_array('a.b|c', '.')": ["a", "b|c"],
    "array_to_string(tags, '-')": "x-y",
    "starts_with(s, 'Ab')": True,
    "s ILIKE 'ab%'": True,
    "s ~ '^A'": True,
    "s ~* '^a'": True,
    "s !~ '^a'": True,
    r"s LIKE '%\\'": True,
    "regexp_replace('aAa', 'A', 'b', 'gi')": "bbb",
    "to_hex(255)": "ff",
    "character_length(s)": 7,
    # null and logic
    "n IS DISTINCT FROM NULL": False,
    "i IS DISTINCT FROM n": True,
    "n IS NOT DISTINCT FROM NULL": True,
    "coalesce(n, i)": 7,
    "CASE WHEN n IS NULL THEN 'none' ELSE 'some' END": "none",
    "i IN (1, 7)": True,
    "i BETWEEN 1 AND 7": True,
    # arrays, maps, structs
    "tags[1]": "x",
    "tags[3]": None,
    "m['k']": 1,
    "m['other']": None,
    "(st).b.c": "deep",
    "st.b.c": "deep",
    "array_length(tags, 1)": 2,
    "array_length(ARRAY[]::INT[], 1)": None,
    "array_has(tags, 'y')": True,
    "'y' = ANY(tags)": True,
    "i = ANY(ARRAY[1, 2])": False,
    "transform(tags, x -> x || '!')": ["x!", "y!"],
    # json
    "j -> 'a' -> 'b' ->> 1": "ten",
    "j ->> 't'": "text",
    "j -> 't'": '"text"',
    "j -> 'a' -> 'b'": '[10,"ten"]',
    "j -> 'a' ->> 'c d'": None,
    "length(j -> 'a' ->> 'b')": 10,
    "(j ->> 'n')::INT + 1": 6,
    "j -> 'missing'": None,
    # time
    "ts + INTERVAL '5 seconds'": moment("2023-09-18T14:23:15.250000"),
    "ts - INTERVAL '1 day 2 hours'": moment("2023-09-17T12:23:10.250000"),
    "ts + INTERVAL '1 month'": moment("2023-10-18T14:23:10.250000"),
    "ts + INTERVAL '1 month 3 days'": moment("2023-10-21T14:23:10.250000"),
    "INTERVAL '1.5 hours'": timedelta(hours=1.5),
    "'90 min'::INTERVAL": timedelta(minutes=90),
    "INTERVAL '-00:00:01.5'": timedelta(seconds=-1.5),
    "extract(epoch FROM ts)": Decimal("1695046990.250000"),
    "extract(dow FROM ts)": 1,
    "extract(isodow FROM ts)": 1,
    "extract(milliseconds FROM ts)": Decimal("10250.000000"),
    "date_part('hour', ts)": 14,
    "date_trunc('hour', ts)": moment("2023-09-18T14:00:00"),
    "date_bin(INTERVAL '15 minutes', ts)": moment("2023-09-18T14:15:00"),
    "date_bin(INTERVAL '15 minutes', ts, TIMESTAMP '2001-01-01 00:05:00')": moment("2023-09-18T14:20:00"),
    "to_char(ts, 'YYYY-MM-DD HH24:MI:SS.MS')": "2023-09-18 14:23:10.250",
    "to_timestamp('2020/02/03', 'YYYY/MM/DD')": moment("2020-02-03T00:00:00"),
    "to_timestamp_millis(1500)": moment("1970-01-01T00:00:01.500000"),
    "ts > TIMESTAMP '2020-01-01 00:00:00'": True,
    "CAST(ts AS DATE)": date(2023, 9, 18),
}


async def evaluated(engine: Engine, program: Program, row: Mapping[str, object]) -> list[dict[str, object]]:
    source = program.nodes[0].operators[0].output
    assert source is not None
    batch = pa.RecordBatch.from_pylist([{name: row[name] for name in source.names}], source)
    for operator in program.nodes[0].operators[1:]:
        if isinstance(operator.kind, ArrowValue):
            spec = FragmentSpec(operator.kind.sql, {INPUT: batch.schema}, operator.output)
            async with await engine.plan(spec) as fragment:
                (batch,) = await fragment.run(batch)
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


async def test_expressions_have_the_values_that_postgres_gives(engine: Engine) -> None:
    values = ", ".join(f"{expression} AS x{place}" for place, expression in enumerate(EXPRESSIONS))
    compilation = await compile_query(f"{TABLE} SELECT {values} FROM t", engine)
    assert compilation.program is not None, compilation.diagnostics
    # Structs are cut down to what is read of them, and so is the row.
    row = {**ROW, "st": {"b": {"c": "deep"}}}
    (result,) = await evaluated(engine, compilation.program, row)
    actual = {expression: result[f"x{place}"] for place, expression in enumerate(EXPRESSIONS)}
    assert actual == EXPRESSIONS


@pytest.mark.parametrize(
    ("column", "row", "message"),
    [
        ("ts TIMESTAMP", {"ts": None}, "a row of t has no event time: ts is null"),
        ("ts TIMESTAMP NOT NULL", {"ts": moment("2023-01-01T00:00:00")}, None),
    ],
)
async def test_event_time_that_is_missing_fails_the_job_and_is_never_made_up(
    engine: Engine, column: str, row: dict[str, object], message: str | None
) -> None:
    table = f"CREATE TABLE t ({column}, WATERMARK FOR ts) WITH (connector = 'single_file', path = 'x');"
    program = (await compile_query(f"{table} SELECT ts FROM t", engine)).program
    assert program is not None
    row["_timestamp"] = moment("2020-01-01T00:00:00")
    if message is None:
        (result,) = await evaluated(engine, program, row)
        assert result["_timestamp"] == row["ts"]
    else:
        with pytest.raises(DataError, match=message):
            await evaluated(engine, program, row)


async def test_null_in_a_column_that_is_not_null_fails_the_job(engine: Engine) -> None:
    tables = f"{TABLE} CREATE TABLE out (a INT NOT NULL) WITH (connector = 'blackhole');"
    program = (await compile_query(f"{tables} INSERT INTO out SELECT n FROM t", engine)).program
    assert program is not None
    with pytest.raises(DataError, match="column a of out is NOT NULL"):
        await evaluated(engine, program, ROW)
