"""What a batch engine answers: DuckDB, which shares no line with Penstock, or Spark with all rows at once."""

from __future__ import annotations

from typing import Final

import duckdb
import pyarrow as pa
from reference.data import TABLE_NAMES, Dataset
from reference.lookups import LOOKUP_TABLES
from reference.queries import Oracle, Query

from penstock.spark import Engine, FragmentSpec

_MACROS: Final = """
-- As Postgres has them: NULL is greater than all else, and integers divide to integers.
SET default_null_order = 'postgres';

-- Where the window of a time begins: windows are counted from 1970 on, whatever their width.
CREATE MACRO bucket(width, ts) AS time_bucket(width, ts, TIMESTAMP '1970-01-01');
CREATE MACRO span(began, width) AS {'start': began, 'end': began + width};

-- Every event once for each window that holds it.
CREATE MACRO hopped(slide, width) AS TABLE
  SELECT *, window_start + width AS window_end
  FROM (SELECT *, bucket(slide, ts) - k * slide AS window_start FROM events, range(64) AS r(k))
  WHERE window_start + width > ts;

-- What is valid from a time on: of several versions of one time, the greatest, by its id where a query reads that.
CREATE VIEW versions AS
  SELECT * FROM limits QUALIFY row_number() OVER (PARTITION BY user, ts ORDER BY id DESC) = 1;

-- Every event with the number of its session among those of its user.
CREATE MACRO sessions(gap) AS TABLE
  SELECT *, sum(fresh) OVER (PARTITION BY user ORDER BY ts, id) AS session
  FROM (
    SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY user ORDER BY ts, id) < gap THEN 0 ELSE 1 END AS fresh
    FROM events);
"""


async def answer(query: Query, data: Dataset, engine: Engine) -> pa.Table:
    """All rows of the answer, in any order."""
    match query.oracle:
        case Oracle.DUCKDB:
            return ask_duckdb(query.oracle_sql, data)
        case Oracle.SPARK:
            return await _ask_spark(query.oracle_sql, data, engine)


def ask_duckdb(sql: str, data: Dataset) -> pa.Table:
    with duckdb.connect() as connection:
        for table in TABLE_NAMES:
            connection.register(table, data.whole(table))
        for table, rows in LOOKUP_TABLES.items():
            connection.register(table, rows)
        connection.execute(_MACROS)
        return connection.sql(sql).to_arrow_table()


async def _ask_spark(sql: str, data: Dataset, engine: Engine) -> pa.Table:
    inputs = {table: data.whole(table) for table in TABLE_NAMES if table in sql}
    spec = FragmentSpec(sql, {table: rows.schema for table, rows in inputs.items()})
    async with await engine.plan(spec) as fragment:
        return pa.Table.from_batches(
            await fragment.run(*(rows.combine_chunks().to_batches() for rows in inputs.values()))
        )
