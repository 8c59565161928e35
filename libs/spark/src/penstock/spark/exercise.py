"""Uses what first queries and their fragments use, so that the class cache, which is recorded meanwhile, holds it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.spark.aggregation import AggregationStage, StageName
from penstock.spark.fragment import FragmentSpec

if TYPE_CHECKING:
    from penstock.spark.engine import Engine

_ROUNDS: Final = 20
_SCHEMA: Final = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("s", pa.string()), ("t", pa.timestamp("us"))])
_LINE: Final = b'{"k":1,"v":0.5,"s":"a","t":"2000-01-01T00:00:00"}\n'

_QUERIES: Final = (
    "SELECT k, v * 2 AS v, upper(s) AS s FROM a WHERE v > 1",
    "SELECT k, penstock_json_line('rfc3339', 'k', k, 'v', v, 's', s, 't', t) AS l FROM a",
    "SELECT k, window(t, '1 second').end AS w, count(*) AS n, avg(v) AS v FROM a GROUP BY ALL",
    "SELECT a.k, b.s FROM a JOIN b ON a.s = b.s LEFT JOIN a AS c ON c.t = a.t ORDER BY b.t LIMIT 10",
)
_ON_TIME: Final = """
    SELECT k, v, s, penstock_pane(u, 1000) AS t
    FROM (
        SELECT *, penstock_watermark(u) AS w
        FROM (SELECT *, penstock_observe(t, t - INTERVAL '1' SECOND) AS u FROM rows)
    )
    WHERE penstock_on_time(u, w)
"""
# One for each way in which Spark aggregates: by hash, by sorting, of objects, and in more than two steps.
_AGGREGATES: Final = ("count(*) AS n, sum(v) AS v", "max(s) AS s", "collect_list(v) AS v", "count(DISTINCT s) AS n")


async def exercise(engine: Engine) -> None:
    """Analyses, plans and runs one of each kind."""
    batch = pa.RecordBatch.from_pylist([{"k": i % 7, "v": i / 3, "s": str(i), "t": i} for i in range(1000)], _SCHEMA)
    await engine.functions()
    await _exercise_queries(engine, batch)
    for aggregates in _AGGREGATES:
        await _exercise_stages(engine, f"SELECT k, t, {aggregates} FROM input GROUP BY k, t", batch)
    decoder = engine.line_decoder(_SCHEMA, max_line_bytes=1 << 20)
    if decoder is not None:
        await asyncio.to_thread(decoder.decode, _LINE * 1000)
        decoder.close()


async def _exercise_queries(engine: Engine, batch: pa.RecordBatch) -> None:
    for sql in _QUERIES:
        spec = FragmentSpec(sql, {"a": _SCHEMA, "b": _SCHEMA}, None, ("k",), 2)
        await engine.schema_of(spec.sql, spec.inputs)
        await engine.used_by(spec.sql, spec.inputs)
        async with await engine.plan(spec) as fragment:
            for _ in range(_ROUNDS):
                await fragment.run(batch, batch)


async def _exercise_stages(engine: Engine, sql: str, batch: pa.RecordBatch) -> None:
    partial = (await engine.analyse_aggregation(sql, _SCHEMA)).partial
    rows = batch
    for stage in StageName:
        before, schema = (_ON_TIME, _SCHEMA) if stage is StageName.PARTIAL else ("", partial)
        aggregation = AggregationStage(sql, _SCHEMA, stage)
        spec = FragmentSpec(before, {"rows": schema}, aggregation=aggregation, after="SELECT * FROM input WHERE k > 0")
        async with await engine.plan(spec) as fragment:
            for _ in range(_ROUNDS):
                (result,), _, _ = await fragment.observe(rows, None)
        rows = result
