"""What a fragment promises while it runs."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.testing import eventually
from penstock.spark import Engine, FragmentClosed, FragmentRefused, FragmentSpec
from penstock.spark.partitioning import HASH_SPACE, hash_range, partition_of

NUMBERS = pa.schema([("x", pa.int64())])


def numbers(count: int, start: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(range(start, start + count), pa.int64())})


async def once(engine: Engine, sql: str, *batches: pa.RecordBatch) -> list[dict[str, object]]:
    inputs = {name: batch.schema for name, batch in zip("abcdefgh", batches, strict=False)}
    async with await engine.plan(FragmentSpec(sql, inputs)) as fragment:
        (result,) = await fragment.run(*batches)
    rows: list[dict[str, object]] = result.to_pylist()
    return rows


async def test_state_does_not_leak_from_run_to_run(engine: Engine) -> None:
    spec = FragmentSpec("SELECT count(*) AS n, sum(x) AS s FROM a", {"a": NUMBERS})
    async with await engine.plan(spec) as fragment:
        for count in (5, 0, 3, 100_000, 1):
            (result,) = await fragment.run(numbers(count))
            assert result.to_pylist() == [{"n": count, "s": sum(range(count)) if count else None}]


@pytest.mark.parametrize("batches", [0, 1, 3, 40])
async def test_input_may_be_any_number_of_batches(engine: Engine, batches: int) -> None:
    rows = [numbers(100, start=100 * index) for index in range(batches)]
    async with await engine.plan(FragmentSpec("SELECT x FROM a", {"a": NUMBERS})) as fragment:
        (result,) = await fragment.run(rows)
    assert result["x"].to_pylist() == list(range(100 * batches))


async def test_columns_that_are_only_chosen_stay_where_they_are(engine: Engine) -> None:
    rows = pa.record_batch({"a": [1, 2], "b": ["x", None], "c": pa.array([3, 4], pa.uint16())})
    spec = FragmentSpec("SELECT b AS d, c, a, b FROM input", {"input": rows.schema}, pa.schema([
        ("d", pa.string()), ("c", pa.uint16()), ("a", pa.int64()), ("b", pa.string()),
    ]))  # fmt: skip
    async with await engine.plan(spec) as fragment:
        (chosen,) = await fragment.run(rows)
        assert chosen.to_pydict() == {"d": ["x", None], "c": [3, 4], "a": [1, 2], "b": ["x", None]}
        assert chosen.column("a").buffers()[1].address == rows.column("a").buffers()[1].address
        (twice,) = await fragment.run([rows, rows.slice(1)])
        assert twice.column("a").to_pylist() == [1, 2, 2]
        (none,) = await fragment.run([])
        assert none.num_rows == 0 and none.schema == spec.output
        with pytest.raises(ValueError, match="schema"):
            await fragment.run(rows.select(["a"]))
    with pytest.raises(FragmentClosed):
        await fragment.run(rows)


async def test_a_column_of_another_type_than_came_is_converted(engine: Engine) -> None:
    rows = pa.record_batch({"a": pa.array([1, 2], pa.int32())})
    spec = FragmentSpec("SELECT a FROM input", {"input": rows.schema}, pa.schema([("a", pa.uint8())]))
    with pytest.raises(FragmentRefused):
        await engine.plan(spec)
    wide = FragmentSpec("SELECT a FROM input", {"input": pa.schema([("a", pa.uint16())])}, rows.schema)
    async with await engine.plan(wide) as fragment:
        (found,) = await fragment.run(pa.record_batch({"a": pa.array([7], pa.uint16())}))
        assert found.column("a").type == pa.int32() and found.column("a").to_pylist() == [7]


async def test_large_result_comes_back_in_order_and_whole(engine: Engine) -> None:
    async with await engine.plan(FragmentSpec("SELECT x, repeat('y', 50) AS s FROM a", {"a": NUMBERS})) as fragment:
        (result,) = await fragment.run(numbers(300_000))
    assert result["x"].to_pylist() == list(range(300_000))
    assert pc.all(pc.equal(pc.binary_length(result["s"]), 50)).as_py()


async def test_memory_of_a_huge_result_is_given_back(engine: Engine) -> None:
    sql = "SELECT repeat('y', 1000000) AS s FROM a"
    async with await engine.plan(FragmentSpec(sql, {"a": NUMBERS}, None, ("s",), 2)) as fragment:
        parts = await fragment.run(numbers(300))
        assert sum(part.num_rows for part in parts) == 300

        async def is_small() -> bool:
            return (await engine.status()).arrow_allocated < 64 << 20

        await eventually(is_small)
        assert sum(part.num_rows for part in await fragment.run(numbers(3))) == 3


async def test_eight_inputs_are_read_in_any_order(engine: Engine) -> None:
    names = "abcdefgh"
    columns = ", ".join(f"{name}.x AS {name}" for name in names)
    joins = " ".join(f"JOIN {name} ON {name}.x = a.x" for name in names[1:])
    rows = await once(engine, f"SELECT {columns} FROM a {joins} WHERE a.x < 3", *[numbers(1000)] * 8)
    assert sorted(row["h"] for row in rows) == [0, 1, 2]  # type: ignore[type-var]


def test_nine_inputs_or_none_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 8 inputs"):
        FragmentSpec("SELECT 1", {})
    with pytest.raises(ValueError, match="1 to 8 inputs"):
        FragmentSpec("SELECT 1", {str(index): NUMBERS for index in range(9)})


async def test_one_input_may_be_read_twice(engine: Engine) -> None:
    rows = await once(engine, "SELECT l.x FROM a AS l JOIN a AS r ON l.x = r.x + 1 ORDER BY 1", numbers(4))
    assert [row["x"] for row in rows] == [1, 2, 3]


async def test_inner_cte_shadows_an_input(engine: Engine) -> None:
    rows = await once(engine, "WITH a AS (SELECT x + 100 AS x FROM b) SELECT x FROM a", numbers(1), numbers(2))
    assert [row["x"] for row in rows] == [100, 101]


async def test_names_are_case_sensitive(engine: Engine) -> None:
    batch = pa.record_batch({"x": [1], "X": [2]})
    assert await once(engine, "SELECT x, X FROM a", batch) == [{"x": 1, "X": 2}]


async def test_limit_leaves_the_rest_unread_and_the_next_run_is_whole(engine: Engine) -> None:
    async with await engine.plan(FragmentSpec("SELECT x FROM a LIMIT 2", {"a": NUMBERS})) as fragment:
        for _ in range(3):
            (result,) = await fragment.run([numbers(200_000), numbers(200_000)])
            assert result["x"].to_pylist() == [0, 1]


async def test_fragment_is_planned_while_others_run(engine: Engine) -> None:
    slow = "SELECT count(*) AS n FROM a CROSS JOIN a AS b"
    async with await engine.plan(FragmentSpec(slow, {"a": NUMBERS})) as fragment:
        running = asyncio.create_task(fragment.run(numbers(8_000)))
        assert await once(engine, "SELECT x + 1 AS y FROM a", numbers(1)) == [{"y": 1}]
        assert not running.done()
        assert (await running)[0]["n"].to_pylist() == [64_000_000]


async def test_clock_is_that_of_the_run(engine: Engine) -> None:
    sql = "SELECT now() AS n, current_timestamp() AS c, current_date() AS d, localtimestamp() AS l FROM a"
    async with await engine.plan(FragmentSpec(sql, {"a": NUMBERS})) as fragment:
        (first,) = await fragment.run(numbers(2))
        await asyncio.sleep(0.01)
        (second,) = await fragment.run(numbers(2))
    one, two = first.to_pylist()
    assert one == two
    assert one["n"] == one["c"] == one["l"].replace(tzinfo=UTC)
    assert abs(one["n"] - datetime.now(UTC)) < timedelta(seconds=30)
    assert second.to_pylist()[0]["n"] > one["n"]


async def test_random_functions_differ_from_run_to_run(engine: Engine) -> None:
    sql = "SELECT uuid() AS u, rand() AS r, monotonically_increasing_id() AS m FROM a"
    async with await engine.plan(FragmentSpec(sql, {"a": NUMBERS})) as fragment:
        results = [(await fragment.run(numbers(50)))[0] for _ in range(20)]
    for column in "urm":
        values = [value for result in results for value in result[column].to_pylist()]
        assert len(set(values)) == 1000, column


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT /*+ REPARTITION(4) */ x FROM a", "exchange"),
        ("SELECT a.x FROM a LEFT JOIN b ON a.x > b.x", "broadcast"),
        ("SELECT x FROM a WHERE x > (SELECT max(x) FROM b)", "subquery"),
        ("SELECT x FROM a WHERE x NOT IN (SELECT x FROM b)", "broadcast"),
        ("WITH r AS (SELECT x, rand() AS y FROM a) SELECT l.x FROM r AS l JOIN r AS k ON l.y = k.y", "exchange"),
    ],
)
async def test_plan_that_needs_more_than_a_thread_is_refused_with_its_reason(
    engine: Engine, sql: str, reason: str
) -> None:
    with pytest.raises(FragmentRefused, match=reason) as refused:
        await engine.plan(FragmentSpec(sql, {"a": NUMBERS, "b": NUMBERS}))
    assert refused.value.hint


async def test_partition_column_must_be_in_the_output(engine: Engine) -> None:
    with pytest.raises(FragmentRefused, match="partition column `y` is not among the output columns"):
        await engine.plan(FragmentSpec("SELECT x FROM a", {"a": NUMBERS}, None, ("y",), 2))


def test_hash_ranges_cover_the_space_and_agree_with_the_partition_of_a_hash() -> None:
    for partitions in (1, 2, 3, 7, 128):
        ranges = [hash_range(index, partitions) for index in range(partitions)]
        assert ranges[0].start == 0 and ranges[-1].stop == HASH_SPACE
        assert all(left.stop == right.start for left, right in pairwise(ranges))
        for index, hashes in enumerate(ranges):
            assert partition_of(hashes.start, partitions) == partition_of(hashes.stop - 1, partitions) == index
    assert partition_of(-1, 7) == 6


@pytest.mark.parametrize(
    "slow",
    [
        "SELECT a.x FROM a CROSS JOIN a AS b CROSS JOIN a AS c WHERE a.x + b.x + c.x < 0",
        "SELECT a.x FROM a JOIN b ON a.x % 1 = b.x % 1 JOIN b AS c ON a.x % 1 = c.x % 1 WHERE a.x * b.x * c.x < 0",
        "SELECT /*+ MERGE(b) */ sum(b.x) AS x FROM a JOIN b ON a.x % 1 = b.x % 1 CROSS JOIN a AS c HAVING x < 0",
        "SELECT x FROM (SELECT x, explode(sequence(1, 1000000)) AS y FROM a) GROUP BY x HAVING sum(y) < 0",
    ],
)
async def test_cancelled_run_frees_its_thread_and_the_fragment_runs_again(engine: Engine, slow: str) -> None:
    before = (await engine.status()).connections
    async with await engine.plan(FragmentSpec(slow, {"a": NUMBERS, "b": NUMBERS})) as fragment:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await fragment.run(numbers(5000), numbers(5000))
        await eventually(lambda: connections_are(engine, before))
        assert (await fragment.run(numbers(3), numbers(3)))[0].num_rows == 0


async def test_cancelled_before_its_input_is_sent_leaves_nothing_behind(engine: Engine) -> None:
    async with await engine.plan(FragmentSpec("SELECT sum(x) AS s FROM a", {"a": NUMBERS})) as fragment:
        big = [numbers(400_000)] * 8
        for delay in (0, 0.001, 0.005, 0.02):
            running = asyncio.create_task(fragment.run(big))
            await asyncio.sleep(delay)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            (result,) = await fragment.run(numbers(4))
            assert result["s"].to_pylist() == [6]


async def test_close_ends_a_run_under_way(engine: Engine) -> None:
    before = (await engine.status()).connections
    slow = "SELECT a.x FROM a CROSS JOIN a AS b CROSS JOIN a AS c WHERE a.x + b.x + c.x < 0"
    fragment = await engine.plan(FragmentSpec(slow, {"a": NUMBERS}))
    running = asyncio.create_task(fragment.run(numbers(5000)))
    await asyncio.sleep(0.1)
    started_at = time.monotonic()
    await fragment.close()
    with pytest.raises(FragmentClosed):
        await running
    assert time.monotonic() - started_at < 2
    await eventually(lambda: connections_are(engine, before))
    with pytest.raises(FragmentClosed):
        await fragment.run(numbers(1))


async def connections_are(engine: Engine, count: int) -> bool:
    return (await engine.status()).connections <= count


async def test_runs_of_one_fragment_wait_for_each_other(engine: Engine) -> None:
    async with await engine.plan(FragmentSpec("SELECT sum(x) AS s FROM a", {"a": NUMBERS})) as fragment:
        results = await asyncio.gather(*(fragment.run(numbers(count)) for count in range(1, 30)))
    assert [result[0]["s"].to_pylist() for result in results] == [[sum(range(count))] for count in range(1, 30)]


async def test_batch_of_another_schema_is_refused_and_nothing_is_sent(engine: Engine) -> None:
    async with await engine.plan(FragmentSpec("SELECT x FROM a", {"a": NUMBERS})) as fragment:
        with pytest.raises(ValueError, match="schema is not the input's"):
            await fragment.run(pa.record_batch({"x": ["text"]}))
        with pytest.raises(ValueError, match="has 1 inputs, not 2"):
            await fragment.run(numbers(1), numbers(1))
        assert (await fragment.run(numbers(1)))[0].num_rows == 1


async def test_sliced_batches_send_only_their_rows(engine: Engine) -> None:
    batch = pa.record_batch({"x": pa.array(range(1000), pa.int64()), "s": [str(index) for index in range(1000)]})
    spec = FragmentSpec("SELECT x, s FROM a", {"a": batch.schema})
    async with await engine.plan(spec) as fragment:
        (result,) = await fragment.run(batch.slice(990, 5))
    assert result.to_pylist() == [{"x": index, "s": str(index)} for index in range(990, 995)]
