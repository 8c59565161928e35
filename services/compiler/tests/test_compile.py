"""What holds for every query: its operators' keys, previews, limits, and what happens when the engine is gone."""

from __future__ import annotations

from penstock.common.program import ConnectorSink, Program
from penstock.compiler import compile_query
from penstock.compiler.compile import MAX_QUERY_CHARACTERS
from penstock.spark import Engine

TABLES = """CREATE TABLE t WITH (connector = 'impulse');
CREATE TABLE out (n BIGINT) WITH (connector = 'single_file', path = 'x', type = 'sink');
"""


async def program_of(engine: Engine, query: str, *, preview: bool = False) -> Program:
    compilation = await compile_query(query, engine, preview=preview)
    assert compilation.program is not None, compilation.diagnostics
    return compilation.program


def keys_of(program: Program) -> list[str]:
    return [operator.key for node in program.nodes for operator in node.operators]


async def test_keys_stay_when_an_unrelated_part_of_the_query_changes(engine: Engine) -> None:
    insert = "INSERT INTO out SELECT counter + 1 FROM t WHERE counter > 3;"
    alone = keys_of(await program_of(engine, TABLES + insert))
    beside = keys_of(await program_of(engine, TABLES + "SELECT subtask_index FROM t; -- more\n" + insert))
    assert set(alone) < set(beside)
    assert len(set(beside)) == len(beside)


async def test_preview_replaces_every_sink_and_keeps_its_columns(engine: Engine) -> None:
    query = TABLES + "INSERT INTO out SELECT counter FROM t; SELECT counter AS c FROM t;"
    program = await program_of(engine, query, preview=True)
    sinks = {
        operator.kind.table: operator.kind
        for node in program.nodes
        for operator in node.operators
        if isinstance(operator.kind, ConnectorSink)
    }
    assert {name: (sink.connector, dict(sink.options)) for name, sink in sinks.items()} == {
        "out": ("preview", {}),
        "preview": ("preview", {}),
    }
    assert sinks["out"].input.names == ["n", "_timestamp"]


async def test_previews_have_names_that_no_table_has(engine: Engine) -> None:
    query = "CREATE TABLE preview WITH (connector = 'impulse'); SELECT counter FROM preview; SELECT 1 AS x FROM preview"
    program = await program_of(engine, query)
    assert sorted(key for key in keys_of(program) if key.startswith("sink")) == ["sink_preview_2", "sink_preview_3"]


async def test_query_that_is_too_long_is_refused(engine: Engine) -> None:
    compilation = await compile_query("SELECT 1 FROM t -- " + "x" * MAX_QUERY_CHARACTERS, engine)
    assert compilation.program is None
    assert [diagnostic.code for diagnostic in compilation.diagnostics] == ["too_complex"]


async def test_queries_that_are_too_deep_are_refused_and_the_next_is_compiled(engine: Engine) -> None:
    for expression in (
        "(" * 5000 + "1" + ")" * 5000,
        "CASE WHEN counter > 1 THEN " * 200 + "1" + " END" * 200,
        " + ".join(["counter"] * 5000),
        "NOT " * 2000 + "true",
    ):
        compilation = await compile_query(f"{TABLES} SELECT {expression} AS x FROM t", engine)
        assert compilation.program is None
        assert {diagnostic.code for diagnostic in compilation.diagnostics} == {"too_complex"}
    await program_of(engine, f"{TABLES} SELECT counter FROM t")
