from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.compiler.passes.drop_identities import drop_identities
from penstock.compiler.passes.prune_columns import prune_columns
from penstock.compiler.passes.prune_sources import prune_sources
from penstock.compiler.plan import Scan
from penstock.compiler.testing import tidy_plan_of
from penstock.spark import Engine

TABLE = """CREATE TABLE t (
  a INT, s STRUCT<x INT, y STRUCT<p TEXT, q TEXT>>, l STRUCT<u INT, v INT>[], line BIGINT METADATA FROM 'line'
) WITH (connector = 'single_file', path = 'x', type = 'source');
"""
PQ = pa.struct([("p", pa.string()), ("q", pa.string())])


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("SELECT a FROM t", [("a", pa.int32())]),
        ("SELECT s.y.p AS p FROM t", [("s", pa.struct([("y", pa.struct([("p", pa.string())]))]))]),
        ("SELECT s.y.p AS p FROM t; SELECT s.y.q AS q FROM t", [("s", pa.struct([("y", PQ)]))]),
        ("SELECT s.x AS x FROM t; SELECT s FROM t", [("s", pa.struct([("x", pa.int32()), ("y", PQ)]))]),
        ("SELECT l.u AS us FROM t", [("l", pa.list_(pa.struct([("u", pa.int32())])))]),
    ],
)
async def test_source_has_what_all_its_readers_read(
    engine: Engine, query: str, fields: list[tuple[str, pa.DataType]]
) -> None:
    plan, analyst = await tidy_plan_of(TABLE + query, engine)
    for improve in (prune_columns, drop_identities, prune_sources):
        plan = await improve(plan, analyst)
    scan = plan.steps[0]
    assert isinstance(scan.kind, Scan)
    assert [(field.name, field.type) for field in scan.schema][:-1] == fields
    assert scan.schema.names[-1] == "_timestamp"
    assert dict(scan.kind.metadata) == {}
