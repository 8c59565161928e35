"""Whatever text comes in, diagnostics or a program come out, and never an exception."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.compiler import Compilation, compile_query
from penstock.compiler.diagnostics import Problems
from penstock.compiler.parse import parse
from penstock.spark import AggregationAnalysis, Engine, FunctionKind, Position, SqlError

FOLDER = Path(__file__).parent
QUERIES: Final = [path.read_text() for path in sorted(FOLDER.glob("*/*.sql"))]
WORDS: Final = sorted({word for query in QUERIES for word in query.split()})
SEEDS: Final = range(40)


class Refusing:
    """An engine that knows no function and refuses every query, at its beginning."""

    async def schema_of(self, sql: str, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        raise SqlError("no", sql=sql, error_class="UNRESOLVED_COLUMN.WITH_SUGGESTION", position=Position(1, 8))

    async def analyse_aggregation(self, sql: str, schema: pa.Schema) -> AggregationAnalysis:
        raise SqlError("no", sql=sql, error_class="UNRESOLVED_COLUMN.WITH_SUGGESTION", position=Position(1, 8))

    async def used_by(self, sql: str, inputs: Mapping[str, pa.Schema]) -> Mapping[str, pa.Schema]:
        raise SqlError("no", sql=sql, error_class="UNRESOLVED_COLUMN.WITH_SUGGESTION", position=Position(1, 8))

    async def declare(self, name: str, returns: pa.DataType) -> None:
        return

    async def functions(self) -> Mapping[str, FunctionKind]:
        return {}


def compiled(query: str) -> Compilation:
    return asyncio.run(compile_query(query, Refusing()))


def check(compilation: Compilation, query: str) -> None:
    lines = query.split("\n")
    for diagnostic in compilation.diagnostics:
        assert diagnostic.message and "\n" not in diagnostic.message
        if (span := diagnostic.span) is not None:
            assert 1 <= span.line <= span.end_line <= len(lines)
            assert 1 <= span.column <= len(lines[span.line - 1]) + 1


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=200))
def test_any_text_is_refused_in_order(query: str) -> None:
    compilation = compiled(query)
    assert compilation.program is None and compilation.diagnostics
    check(compilation, query)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join))
def test_any_words_of_the_language_are_refused_in_order(query: str) -> None:
    check(compiled(query), query)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False))
def test_parser_takes_any_mutation(query: str, choice: random.Random) -> None:
    problems = Problems()
    mutated = mutation(query, choice)
    parse(mutated, problems)
    check(Compilation(None, problems.diagnostics), mutated)


@pytest.mark.parametrize("seed", SEEDS)
async def test_mutation_of_a_query_is_compiled_or_refused_in_order(engine: Engine, seed: int) -> None:
    choice = random.Random(seed)
    query = mutation(choice.choice(QUERIES), choice)
    compilation = await compile_query(query, engine)
    assert (compilation.program is None) == any(
        diagnostic.severity.name == "ERROR" for diagnostic in compilation.diagnostics
    )
    check(compilation, query)


def mutation(query: str, choice: random.Random) -> str:
    """A query with a few words taken away, doubled, swapped or replaced by others."""
    words = query.split(" ")
    for _ in range(choice.randint(1, 4)):
        place = choice.randrange(len(words))
        match choice.randrange(4):
            case 0 if len(words) > 1:
                del words[place]
            case 1:
                words.insert(place, words[choice.randrange(len(words))])
            case 2:
                words[place] = choice.choice(WORDS)
            case _:
                words[place] = words[place][::-1]
    return " ".join(words)
