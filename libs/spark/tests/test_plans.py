"""A plan that is asked for again is not made again, and whoever runs it has it for itself."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from penstock.spark import Engine, FragmentSpec, SqlError, Udf

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def rows(start: int, count: int = 1000) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.RecordBatch.from_pydict({"k": list(numbers), "s": [f'{{"n": {n}}}' for n in numbers]}, SCHEMA)


async def test_a_plan_is_made_once_for_all_who_ask_for_it(engine: Engine) -> None:
    before = (await engine.status()).plans
    spec = FragmentSpec("SELECT k + 12345 AS k FROM t", {"t": SCHEMA})
    fragments = await asyncio.gather(*(engine.plan(spec) for _ in range(5)))
    assert (await engine.status()).plans == before + 1
    for fragment in fragments:
        await fragment.close()
    async with await engine.plan(spec) as fragment:
        (result,) = await fragment.run(rows(0, 2))
    assert result.to_pydict() == {"k": [12345, 12346]}
    assert (await engine.status()).plans == before + 1


async def test_another_number_of_partitions_is_another_plan(engine: Engine) -> None:
    before = (await engine.status()).plans
    for partitions in (2, 3):
        spec = FragmentSpec("SELECT k + 54321 AS k FROM t", {"t": SCHEMA}, None, ("k",), partitions)
        async with await engine.plan(spec) as fragment:
            results = await fragment.run(rows(0))
        assert len(results) == partitions
        assert sum(batch.num_rows for batch in results) == 1000
    assert (await engine.status()).plans == before + 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT from_json(s, 'n BIGINT').n AS n FROM t",
        "SELECT sum(k) AS n, count(DISTINCT s) AS d, max_by(s, k) AS m FROM t",
        "SELECT a.k AS n, b.s AS s FROM t AS a JOIN t AS b ON a.k = b.k + 1",
        "SELECT k AS n, row_number() OVER (ORDER BY k DESC) AS r FROM t",
        "SELECT collect_list(k) AS n FROM t GROUP BY k % 10",
    ],
)
async def test_runs_of_one_plan_at_once_know_nothing_of_each_other(engine: Engine, sql: str) -> None:
    spec = FragmentSpec(sql, {"t": SCHEMA})
    inputs = [rows(place * 1_000_000) for place in range(4)]
    async with await engine.plan(spec) as alone:
        expected = [await alone.run(batch) for batch in inputs]
    fragments = await asyncio.gather(*(engine.plan(spec) for _ in inputs))
    for _ in range(20):
        found = await asyncio.gather(*(fragment.run(batch) for fragment, batch in zip(fragments, inputs, strict=True)))
        assert found == expected
    for fragment in fragments:
        await fragment.close()


async def test_what_cannot_be_planned_is_told_to_all_who_ask(engine: Engine) -> None:
    before = (await engine.status()).plans
    spec = FragmentSpec("SELECT nothing FROM t", {"t": SCHEMA})
    found = await asyncio.gather(*(engine.plan(spec) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(error, SqlError) and "nothing" in str(error) for error in found)
    assert (await engine.status()).plans == before


async def test_a_function_registered_again_is_the_one_that_is_called(engine: Engine) -> None:
    spec = FragmentSpec("SELECT again_and_again(k) AS k FROM t", {"t": SCHEMA})
    for summand in (1, 2):
        await engine.register(Udf("again_and_again", lambda k, summand=summand: k + summand, pa.int64()))
        async with await engine.plan(spec) as fragment:
            (result,) = await fragment.run(rows(0, 2))
        assert result.to_pydict() == {"k": [summand, summand + 1]}
