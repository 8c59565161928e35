"""Queries that create and call Python functions: what they are compiled to, and what is wrong with them, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from penstock.common.diagnostics import render_diagnostic
from penstock.common.program import ArrowValue, AsyncUdf, Program
from penstock.common.program_proto import program_from_proto, program_to_proto
from penstock.common.storage import open_storage
from penstock.compiler import Compilation, compile_query
from penstock.compiler.compile import QueryFunctions
from penstock.compiler.udfs import Udfs
from penstock.spark import Engine

TABLE: Final = "CREATE TABLE t WITH (connector = 'impulse');\n"
DOUBLED: Final = """CREATE FUNCTION doubled LANGUAGE python AS $$
def doubled(a: int) -> int:
    return a * 2
$$;
"""
SLOW: Final = """CREATE FUNCTION slow LANGUAGE python
WITH (in_flight = 500, timeout = '2s', ordered = false, retries = 3) AS $$

async def slow(a: int, b: str) -> str:
    return f"{a}{b}"
$$;
"""
UDFS: Final = Udfs()


async def compiled(engine: Engine, query: str) -> Compilation:
    return await compile_query(query, engine, functions=QueryFunctions(UDFS))


async def program_of(engine: Engine, query: str) -> Program:
    compilation = await compiled(engine, query)
    assert compilation.program is not None, compilation.diagnostics
    assert program_from_proto(program_to_proto(compilation.program)) == compilation.program
    return compilation.program


def sql_of(program: Program) -> str:
    kinds = (operator.kind for node in program.nodes for operator in node.operators)
    return "\n".join(kind.sql for kind in kinds if isinstance(kind, ArrowValue))


async def test_call_is_by_key_with_arguments_of_the_hinted_types(engine: Engine) -> None:
    program = await program_of(engine, f"{TABLE}{DOUBLED}SELECT doubled(subtask_index) FROM t")
    (function,) = program.functions
    assert f"{function.key}(CAST(`t`.`subtask_index` AS BIGINT)) AS `doubled`" in sql_of(program).replace(
        "CAST(`subtask_index`", "CAST(`t`.`subtask_index`"
    )
    sink = program.nodes[-1].operators[-1].kind
    assert sink.input.field("doubled").type == pa.int64()  # type: ignore[union-attr]


async def test_function_that_nobody_calls_is_not_in_the_program(engine: Engine) -> None:
    program = await program_of(engine, f"{TABLE}{DOUBLED}SELECT counter FROM t")
    assert program.functions == ()


async def test_artifact_is_stored_where_the_program_says(engine: Engine, tmp_path: Path) -> None:
    functions = QueryFunctions(Udfs(open_storage(str(tmp_path))))
    query = f"{TABLE}{DOUBLED}SELECT doubled(counter) FROM t"
    program = (await compile_query(query, engine, functions=functions)).program
    assert program is not None
    (function,) = program.functions
    source = await open_storage(function.url).get("source.py")
    assert source.decode().strip().startswith("def doubled")


async def test_function_that_was_built_before_can_be_called_and_is_replaced_by_one_of_the_query(engine: Engine) -> None:
    given = await UDFS.build("def doubled(a: int) -> str:\n    return str(a) * 2\n", None)
    functions = QueryFunctions(UDFS, [given])
    one = await compile_query(f"{TABLE}SELECT doubled(counter) FROM t", engine, functions=functions)
    other = await compile_query(f"{TABLE}{DOUBLED}SELECT doubled(counter) FROM t", engine, functions=functions)
    assert one.program is not None and other.program is not None
    assert one.program.functions == (given.function,)
    assert other.program.functions[0].signature.returns == pa.int64()


async def test_async_call_is_an_operator_of_its_own_after_the_filter_that_needs_no_result(engine: Engine) -> None:
    query = (
        f"{TABLE}{SLOW}SELECT counter, slow(counter, 'x') AS s FROM t WHERE counter > 3 AND slow(counter, 'x') <> '4x'"
    )
    program = await program_of(engine, query)
    before, after = program.nodes
    first, last = before.operators[-1].kind, after.operators[0].kind
    assert isinstance(first, ArrowValue) and "> 3" in first.sql
    assert last == AsyncUdf(program.functions[0].key, ("_udf0_0", "_udf0_1"), "_udf0", False, 500, 2000, 3)
    then = after.operators[1].kind
    assert isinstance(then, ArrowValue) and "<> '4x'" in then.sql and "> 3" not in then.sql


async def test_rows_for_which_a_function_fails_go_to_its_table(engine: Engine) -> None:
    function = DOUBLED.replace("AS $$", "WITH (on_error = 'dead_letter', dead_letter = 'bad') AS $$")
    query = f"{TABLE}{function}SELECT doubled(counter) AS d FROM t WHERE counter > 1;"
    compilation = await compiled(engine, query)
    assert [found.code for found in compilation.diagnostics] == ["unknown_table"]
    program = await program_of(engine, f"CREATE TABLE bad WITH (connector = 'blackhole');{query}")
    assert program.functions[0].catches
    first = program.nodes[0]
    assert len(program.outputs_of(first.key)) == 2  # it is called once, for the rows and for the letters
    assert sql_of(program).count(program.functions[0].key) == 1


async def test_async_calls_inside_each_other_follow_each_other(engine: Engine) -> None:
    program = await program_of(engine, f"{TABLE}{SLOW}SELECT slow(counter, slow(counter, 'x')) AS s FROM t")
    kinds = [operator.kind for node in program.nodes for operator in node.operators]
    assert [kind.result for kind in kinds if isinstance(kind, AsyncUdf)] == ["_udf0", "_udf1"]


ERRORS: Final = {
    "syntax": (
        "CREATE FUNCTION f LANGUAGE python AS $$\n    def f(a: int) -> int:\n        return a +\n$$;",
        "udf_syntax",
        (4, 19),
    ),
    "no_hint": ("CREATE FUNCTION f LANGUAGE python AS $$ def f(a) -> int: return a $$;", "udf_hint", (2, 47)),
    "other_name": ("CREATE FUNCTION g LANGUAGE python AS $$\ndef f(a: int) -> int: ...\n$$;", "udf_missing", (2, 17)),
    "built_in": ("CREATE FUNCTION upper LANGUAGE python AS $$ def upper(a: str) -> str: ... $$;", "duplicate", (2, 17)),
    "reserved": ("CREATE FUNCTION penstock_x LANGUAGE python AS $$ x $$;", "duplicate", (2, 17)),
    "twice": (f"{DOUBLED.strip()}{DOUBLED.strip()}", "duplicate", (5, 20)),
    "language": ("CREATE FUNCTION f LANGUAGE ruby AS $$ x $$;", "unsupported", (2, 28)),
    "parameters": ("CREATE FUNCTION f(a INT) LANGUAGE python AS $$ x $$;", "syntax", (2, 18)),
    "option": (
        "CREATE FUNCTION f LANGUAGE python WITH (retries = 2) AS $$ def f(a: int) -> int: ... $$;",
        "invalid_option",
        (2, 41),
    ),
    "policy": (
        "CREATE FUNCTION f LANGUAGE python WITH (on_error = 'dead_letter') AS $$ def f(a: int) -> int: ... $$;",
        "invalid_option",
        (2, 41),
    ),
    "letters_of_an_aggregate": (
        "CREATE FUNCTION f LANGUAGE python WITH (kind = 'aggregate', on_error = 'dead_letter', dead_letter = 'x')\n"
        "AS $$ def f(a: list[int]) -> int: ... $$;",
        "invalid_option",
        (2, 87),
    ),
    "arguments": (f"{DOUBLED}SELECT doubled(counter, 1) FROM t;", "wrong_arguments", (6, 8)),
    "aggregate_in_where": (
        "CREATE FUNCTION f LANGUAGE python WITH (kind = 'aggregate') AS $$ def f(a: list[int]) -> int: ... $$;\n"
        "SELECT counter FROM t WHERE f(counter) > 1;",
        "misplaced_aggregate",
        (3, 29),
    ),
    "async_in_aggregate": (f"{SLOW}SELECT slow(sum(counter), 'x') AS s FROM t GROUP BY 1;", "misplaced_async", (8, 8)),
    "async_in_column": (
        f"{SLOW}CREATE TABLE u (a BIGINT, b TEXT GENERATED ALWAYS AS (slow(a, 'x')))"
        " WITH (connector = 'single_file', path = 'x', type = 'source');",
        "misplaced_async",
        (8, 55),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_what_is_wrong_with_a_function_is_told_at_its_place_in_the_query(engine: Engine, name: str) -> None:
    wrong, code, place = ERRORS[name]
    query = f"{TABLE}{wrong}\nSELECT counter FROM t;"
    compilation = await compiled(engine, query)
    assert compilation.program is None
    shown = "\n".join(render_diagnostic(found, query) for found in compilation.diagnostics)
    (found,) = compilation.diagnostics
    assert found.code == code, shown
    assert found.span is not None and (found.span.line, found.span.column) == place, shown


async def test_what_is_wrong_with_a_call_is_told_in_the_users_words(engine: Engine) -> None:
    wrong = (
        "CREATE FUNCTION total LANGUAGE python WITH (kind = 'aggregate') AS $$ def total(a: list[int]) -> int: ... $$;"
    )
    query = f"{TABLE}{wrong} SELECT counter FROM t WHERE total(counter) > 1"
    (found,) = (await compiled(engine, query)).diagnostics
    assert found.message == "the aggregate total cannot be in WHERE"
    (found,) = (await compiled(engine, f"{TABLE}{DOUBLED}SELECT doubled(array(counter)) FROM t")).diagnostics
    assert found.code == "type_mismatch" and "__" not in found.message, found
    assert found.span is not None and found.span.line == 6


async def test_call_of_a_function_that_is_wrong_is_not_reported_again(engine: Engine) -> None:
    query = f"{TABLE}CREATE FUNCTION f LANGUAGE python AS $$ def f(a) -> int: ... $$; SELECT f(counter) FROM t"
    assert [found.code for found in (await compiled(engine, query)).diagnostics] == ["udf_hint"]
