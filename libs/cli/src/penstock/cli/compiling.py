"""`penstock validate` and `visualize`: the compiler alone, in this process."""

from __future__ import annotations

from penstock.cli.queries import QueryText
from penstock.common.arrow import leave_pandas_out
from penstock.common.config import Config
from penstock.compiler.compile import Compilation, compile_query
from penstock.spark import Engine, SparkSettings


async def compile_here(config: Config, query: QueryText) -> Compilation:
    """What the compiler makes of a query."""
    leave_pandas_out()
    async with await Engine.start(config.section("spark", SparkSettings)) as engine:
        return await compile_query(query.sql, engine)
