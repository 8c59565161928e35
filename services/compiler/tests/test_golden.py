"""Each query has the plan that is written down beside it, or the diagnostics; PENSTOCK_UPDATE_GOLDEN=1 writes them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.common.diagnostics import render_diagnostic
from penstock.common.program import (
    HASH_COLUMN,
    INPUT,
    LAST_COLUMN,
    LEFT,
    OP_COLUMN,
    RIGHT,
    ArrowKey,
    ArrowValue,
    ConnectorSink,
    EdgeKind,
    InstantJoin,
    Join,
    LookupJoin,
    Output,
    Program,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TemporalJoin,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.common.program_proto import program_from_proto, program_to_proto
from penstock.common.program_text import plan_text
from penstock.compiler import Compilation, compile_query
from penstock.connectors.base import DEAD_LETTERS, TIMESTAMP_COLUMN
from penstock.spark import AggregationStage, Engine, FragmentSpec, StageName

FOLDER = Path(__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples"
STAGED = (TumblingWindowAggregate, SlidingWindowAggregate, SessionWindowAggregate, UpdatingAggregate)
UPDATE = os.environ.get("PENSTOCK_UPDATE_GOLDEN") == "1"


@dataclass(frozen=True)
class Golden:
    path: Path
    query: str

    def expect(self, actual: str, suffix: str) -> None:
        file = self.path.with_suffix(suffix)
        if UPDATE:
            file.write_text(actual)
        assert actual == file.read_text()


def queries(folder: Path) -> list[Golden]:
    return [Golden(path, path.read_text()) for path in sorted(folder.glob("*.sql"))]


def named(golden: Golden) -> str:
    return golden.path.stem


PLANS = queries(FOLDER / "golden")
ERRORS = queries(FOLDER / "errors")


def rendered(compilation: Compilation, golden: Golden) -> str:
    return "".join(
        f"{render_diagnostic(diagnostic, golden.query, golden.path.name)}\n\n" for diagnostic in compilation.diagnostics
    )


@pytest.mark.parametrize("golden", PLANS, ids=named)
async def test_query_has_its_plan(engine: Engine, golden: Golden) -> None:
    compilation = await compile_query(golden.query, engine)
    assert compilation.program is not None, rendered(compilation, golden)
    golden.expect(rendered(compilation, golden) + plan_text(compilation.program), ".plan")
    assert program_from_proto(program_to_proto(compilation.program)) == compilation.program
    await check_queries(engine, compilation.program)


@pytest.mark.parametrize("golden", ERRORS, ids=named)
async def test_wrong_query_is_explained(engine: Engine, golden: Golden) -> None:
    compilation = await compile_query(golden.query, engine)
    assert compilation.program is None
    actual = rendered(compilation, golden)
    golden.expect(actual, ".txt")
    assert "SQLSTATE" not in actual and "`" not in actual


@pytest.mark.parametrize("example", queries(EXAMPLES), ids=named)
async def test_example_compiles_without_a_warning(engine: Engine, example: Golden) -> None:
    compilation = await compile_query(example.query, engine)
    assert compilation.diagnostics == ()
    assert compilation.program is not None
    await check_queries(engine, compilation.program)


async def check_queries(engine: Engine, program: Program) -> None:
    """Every query of a program can be run, and gives the schema that its operator says."""
    for node in program.nodes:
        schema = input_of(program, node.key)
        for operator in node.operators:
            if schema is not None and isinstance(operator.kind, ArrowValue | WindowFunction):
                await check(engine, FragmentSpec(operator.kind.sql, {INPUT: schema}, operator.output))
            if schema is not None and isinstance(operator.kind, ArrowKey):
                await check(engine, staged(operator.kind.query, schema, operator.output))
            if schema is not None and isinstance(operator.kind, STAGED):
                merged = await check(engine, staged(operator.kind.merge, schema, None))
                assert merged.names in (schema.names, [*schema.names, HASH_COLUMN])
                final = await check(engine, staged(operator.kind.final, schema, None))
                assert operator.output is not None
                assert final.names == [name for name in operator.output.names if name != OP_COLUMN]
            if isinstance(operator.kind, InstantJoin | Join | TemporalJoin):
                await check_join(engine, program, node.key, operator.kind, operator.output)
            if isinstance(operator.kind, LookupJoin):
                check_lookup(operator.kind, schema, operator.output)
            if isinstance(operator.kind, ConnectorSink):
                assert schema == operator.kind.input
            schema = operator.output
            assert isinstance(operator.kind, ArrowKey) or schema is None or schema.names[-1] == TIMESTAMP_COLUMN


async def check_join(
    engine: Engine, program: Program, key: str, kind: InstantJoin | Join | TemporalJoin, output: pa.Schema | None
) -> None:
    sides = (kind.left.rows, kind.right.rows) if isinstance(kind, Join) else (kind.left, kind.right)
    for side, edge in zip(sides, (EdgeKind.SHUFFLE_LEFT, EdgeKind.SHUFFLE_RIGHT), strict=True):
        assert input_of(program, key, edge) == side
    assert sides[0].names != sides[1].names
    met = (kind.left.joined, kind.right.joined) if isinstance(kind, Join) else sides
    joined = await check(engine, FragmentSpec(kind.sql, dict(zip((LEFT, RIGHT), met, strict=True))))
    assert output is not None and joined.names == [name for name in output.names if name != OP_COLUMN]
    for side in (kind.left, kind.right) if isinstance(kind, Join) else ():
        kept = await check(engine, FragmentSpec(side.counted, {INPUT: side.rows})) if side.counted else side.rows
        assert kept.names == [*side.joined.names, HASH_COLUMN]
    if isinstance(kind, TemporalJoin):
        versions = await check(engine, FragmentSpec(kind.versions, {INPUT: kind.right}))
        assert versions.names == [*kind.right.names, LAST_COLUMN]


def check_lookup(join: LookupJoin, rows: pa.Schema | None, output: pa.Schema | None) -> None:
    """A lookup has keys of the table's types, and all columns that it gives."""
    assert rows is not None and output is not None
    key = list(join.looked_up)[: len(join.keys)]
    assert [rows.field(name).type for name in join.keys] == [field.type for field in key]
    for field in output:
        found = join.looked_up.field(join.names[field.name]) if field.name in join.names else rows.field(field.name)
        assert found.type == field.type
        assert field.nullable or not found.nullable


async def check(engine: Engine, spec: FragmentSpec) -> pa.Schema:
    """A fragment can be planned and run, and gives what it says."""
    async with await engine.plan(spec) as fragment:
        (result,) = await fragment.run(*(pa.RecordBatch.from_pylist([], schema) for schema in spec.inputs.values()))
    assert result.schema == fragment.output_schema
    return result.schema


def staged(query: StageQuery, schema: pa.Schema, output: pa.Schema | None) -> FragmentSpec:
    stage = None
    if query.aggregation is not None and query.stage is not None:
        name = StageName(query.stage.name.lower())
        stage = AggregationStage(query.aggregation.sql, query.aggregation.input, name)
    return FragmentSpec(query.before, {INPUT: schema}, output, aggregation=stage, after=query.after)


def input_of(program: Program, key: str, kind: EdgeKind | None = None) -> pa.Schema | None:
    """The schema of a node's input, which all its edges of a kind have."""
    schemas = [
        DEAD_LETTERS if edge.output is Output.DEAD_LETTERS else program.node(edge.source).operators[-1].output
        for edge in program.edges
        if edge.target == key and kind in (None, edge.kind)
    ]
    assert kind is None or schemas
    has_sides = any(edge.kind is EdgeKind.SHUFFLE_LEFT for edge in program.edges if edge.target == key)
    assert all(schema == schemas[0] for schema in schemas) or (kind is None and has_sides)
    return schemas[0] if schemas else None
