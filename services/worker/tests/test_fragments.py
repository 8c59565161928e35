from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from penstock.common.program import (
    Aggregation,
    ArrowKey,
    Edge,
    EdgeKind,
    NodeKey,
    Operator,
    OperatorKey,
    Program,
    Stage,
    StageQuery,
)
from penstock.connectors.base import SourceBatch
from penstock.spark import AggregationStage, Engine, StageName
from penstock.worker.engine import Execution
from penstock.worker.fragments import fragment_spec
from penstock.worker.testing import (
    SCHEMA,
    ListSource,
    MemoryConnector,
    MemoryReporter,
    assignment,
    node,
    rows,
    sink,
    source,
    surroundings,
)

GROUPS = "SELECT k, sum(n) AS total, max(_timestamp) AS t FROM input GROUP BY k"
GROUPED = pa.schema([("k", pa.int64()), ("n", pa.int64()), SCHEMA.field(1)])


@pytest.mark.parametrize(
    ("stage", "name"),
    [(Stage.PARTIAL, StageName.PARTIAL), (Stage.MERGE, StageName.MERGE), (Stage.FINAL, StageName.FINAL)],
)
def test_a_stage_of_an_aggregation_is_planned_between_its_queries(stage: Stage, name: StageName) -> None:
    aggregation = Aggregation(GROUPS, GROUPED, GROUPED)
    spec = fragment_spec(StageQuery("before", aggregation, stage, "after"), SCHEMA, None, ("k",), 3)
    assert (spec.sql, spec.aggregation, spec.after) == ("before", AggregationStage(GROUPS, GROUPED, name), "after")
    assert (dict(spec.inputs), spec.partition_by, spec.partitions) == ({"input": SCHEMA}, ("k",), 3)


def test_a_query_without_an_aggregation_is_planned_as_it_is() -> None:
    spec = fragment_spec(StageQuery("SELECT 1"), SCHEMA)
    assert (spec.sql, spec.aggregation, spec.after, spec.partitions) == ("SELECT 1", None, "", 1)


@pytest.mark.parametrize("targets", [1, 2])
async def test_partial_results_find_their_subtask_by_key(engine: Engine, targets: int) -> None:
    analysis = await engine.analyse_aggregation(GROUPS, GROUPED)
    aggregation = Aggregation(GROUPS, GROUPED, analysis.partial)
    totals = pa.schema([("total", pa.int64()), SCHEMA.field(1)])
    before = StageQuery("SELECT n % 7 AS k, n, _timestamp FROM input", aggregation, Stage.PARTIAL)
    after = StageQuery("", aggregation, Stage.FINAL, "SELECT total, t AS _timestamp FROM input")
    program = Program(
        (
            node("a", source(), Operator(OperatorKey("p"), "", ArrowKey(before), analysis.partial)),
            node(
                "b", Operator(OperatorKey("f"), "", ArrowKey(after), totals), sink(schema=totals), parallelism=targets
            ),
        ),
        (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE, ("k",)),),
    )
    connector = MemoryConnector({("t", 0): ListSource([SourceBatch(rows(range(100)))])})
    reporter = MemoryReporter()
    async with asyncio.timeout(60):
        await Execution(assignment(program), surroundings(connector, engine=engine), reporter).run()
    assert not reporter.failed
    arrived = sorted(number for one in connector.sinks.values() for number in one.numbers)
    assert arrived == sorted(sum(range(key, 100, 7)) for key in range(7))
    assert all(one.numbers for one in connector.sinks.values())
