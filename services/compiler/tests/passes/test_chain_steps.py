from __future__ import annotations

from penstock.compiler.passes import PASSES
from penstock.compiler.testing import tidy_plan_of
from penstock.spark import Engine

TABLES = """CREATE TABLE t WITH (connector = 'impulse');
CREATE TABLE any (n BIGINT) WITH (connector = 'blackhole');
CREATE TABLE one (n BIGINT) WITH (connector = 'single_file', path = 'x', type = 'sink');
CREATE TABLE bad WITH (connector = 'blackhole');
CREATE TABLE lines (n BIGINT)
  WITH (connector = 'single_file', path = 'x', bad_data = 'dead_letter', dead_letter = 'bad');
"""


async def chains_of(engine: Engine, query: str) -> list[tuple[int, int | None]]:
    plan, analyst = await tidy_plan_of(TABLES + query, engine)
    for improve in PASSES:
        plan = await improve(plan, analyst)
    assert tuple(step for chain in plan.chains for step in chain.steps) != ()
    return [(len(chain.steps), chain.max_parallelism) for chain in plan.chains]


async def test_source_query_and_sink_of_equal_parallelism_are_one_chain(engine: Engine) -> None:
    assert await chains_of(engine, "INSERT INTO any SELECT counter * 2 FROM t") == [(3, None)]


async def test_sink_of_one_subtask_is_a_chain_of_its_own(engine: Engine) -> None:
    assert await chains_of(engine, "INSERT INTO one SELECT counter * 2 FROM t") == [(2, None), (1, 1)]


async def test_source_with_two_readers_is_a_chain_of_its_own(engine: Engine) -> None:
    query = "INSERT INTO any SELECT counter + 1 FROM t; INSERT INTO any SELECT counter + 2 FROM t"
    assert await chains_of(engine, query) == [(1, None), (1, None), (1, None), (1, None)]


async def test_dead_letters_do_not_part_a_source_from_its_query(engine: Engine) -> None:
    chains = await chains_of(engine, "INSERT INTO any SELECT n * 2 FROM lines")
    assert (3, None) in chains and len(chains) == 2
