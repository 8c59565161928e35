"""Rows stand beside what a table has for their keys; the table is asked once a key and time, and again if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.errors import ErrorDomain, ExternalError, RetryHint, UserError
from penstock.common.program import OP_COLUMN, LookupJoin
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE
from penstock.connectors.errors import FileError, LookupFailed
from penstock.connectors.lookups import LookupKind, LookupOptions
from penstock.connectors.testing import MemoryLookup
from penstock.worker.metrics import LookupCounters
from penstock.worker.operators import lookup_questions
from penstock.worker.operators.lookup import LookupJoins, open_lookup
from penstock.worker.operators.testing import batch_of, rows_of
from penstock.worker.testing_checkpoints import until

TIME = pa.field(TIMESTAMP_COLUMN, TIMESTAMP_TYPE, nullable=False)
ROWS = pa.schema([("c.n", pa.int64()), ("_lookup0", pa.int64()), TIME])
USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
TABLE = pa.table({"id": [1, 2, 3], "name": ["ann", None, "cy"]}, schema=USERS)
OUTPUT = pa.schema([("c.n", pa.int64()), ("u.id", pa.int64()), ("u.name", pa.string()), TIME])
JOIN = LookupJoin("memory", "users", {}, USERS, ("_lookup0",), {"u.id": "id", "u.name": "name"})
OUTER = LookupJoin("memory", "users", {}, USERS, ("_lookup0",), {"u.id": "id", "u.name": "name"}, outer=True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_questions, "_FIRST_BACKOFF_SECONDS", 0.001)


def opened(
    table: MemoryLookup,
    join: LookupJoin = JOIN,
    output: pa.Schema = OUTPUT,
    *,
    counters: LookupCounters | None = None,
    clock: Clock | None = None,
    is_local: bool = False,
    **options: Any,
) -> LookupJoins:
    kind = LookupKind(LookupOptions, is_local)
    settings = LookupOptions(**options)
    return open_lookup(join, output, table, kind, settings, counters or LookupCounters(), clock or Clock())


def rows(*keys: int | None) -> pa.RecordBatch:
    return batch_of(ROWS, [(n, key, n) for n, key in enumerate(keys)])


async def test_rows_without_a_match_are_left_out() -> None:
    operator = opened(MemoryLookup(TABLE))
    assert rows_of(await operator.process((rows(3, 9, None, 1, 3, 2),))) == [
        (0, 3, "cy", 0),
        (3, 1, "ann", 3),
        (4, 3, "cy", 4),
        (5, 2, None, 5),
    ]


async def test_an_outer_join_keeps_them_with_nulls() -> None:
    operator = opened(MemoryLookup(TABLE), OUTER)
    assert rows_of(await operator.process((rows(3, 9, None, 1), rows(2)))) == [
        (0, 3, "cy", 0),
        (1, None, None, 1),
        (2, None, None, 2),
        (3, 1, "ann", 3),
        (0, 2, None, 0),
    ]


@pytest.mark.parametrize("join", [JOIN, OUTER], ids=["inner", "outer"])
async def test_rows_of_which_none_has_a_key_ask_nothing(join: LookupJoin) -> None:
    table = MemoryLookup(TABLE)
    found = rows_of(await opened(table, join).process((rows(None, None),)))
    assert len(found) == (2 if join.outer else 0)
    assert table.asked == []


async def test_changes_are_joined_as_rows_are() -> None:
    op = pa.field(OP_COLUMN, pa.int8(), nullable=False)
    schema = pa.schema([ROWS.field(0), ROWS.field(1), op, TIME])
    output = pa.schema([OUTPUT.field(0), OUTPUT.field(2), op, TIME])
    operator = opened(MemoryLookup(TABLE), JOIN, output)
    batch = batch_of(schema, [(5, 1, 1, 0), (5, 1, -1, 1), (6, 3, 1, 2), (7, 8, -1, 3)])
    assert rows_of(await operator.process((batch,))) == [(5, "ann", 1, 0), (5, "ann", -1, 1), (6, "cy", 1, 2)]


async def test_keys_of_several_columns_match_together() -> None:
    prices = pa.schema([("shop", pa.string()), ("item", pa.int32()), ("price", pa.int64())])
    table = pa.table({"shop": ["a", "a", "b"], "item": [1, 2, 1], "price": [10, 20, 30]}, schema=prices)
    schema = pa.schema([("n", pa.int64()), ("_lookup0", pa.string()), ("_lookup1", pa.int32()), TIME])
    join = LookupJoin("memory", "prices", {}, prices, ("_lookup0", "_lookup1"), {"p.price": "price"}, outer=True)
    output = pa.schema([("n", pa.int64()), ("p.price", pa.int64()), TIME])
    operator = opened(MemoryLookup(table, 2), join, output)
    batch = batch_of(schema, [(0, "b", 1, 0), (1, "b", 2, 0), (2, "a", 2, 0), (3, None, 1, 0), (4, "b", 1, 0)])
    assert [row[:2] for row in rows_of(await operator.process((batch,)))] == [
        (0, 30),
        (1, None),
        (2, 20),
        (3, None),
        (4, 30),
    ]


async def test_a_key_is_asked_once_and_then_known_for_its_time() -> None:
    table, counters, clock = MemoryLookup(TABLE), LookupCounters(), Clock()
    operator = opened(table, counters=counters, clock=clock, cache_ttl=timedelta(seconds=10))
    await operator.process((rows(1, 1, 9, 1),))
    await operator.process((rows(9, 1, 2),))
    assert table.asked == [[(1,), (9,)], [(2,)]]
    assert (counters.lookups, counters.cache_hits, counters.failures) == (3, 2, 0)
    table.rows = pa.table({"id": [9], "name": ["new"]}, schema=USERS)
    clock.now += 11
    assert rows_of(await operator.process((rows(9, 1),))) == [(0, 9, "new", 0)]
    assert table.asked[2:] == [[(9,), (1,)]]


@pytest.mark.parametrize("options", [{"cache_ttl": timedelta(0)}, {"cache_size": 0}, {"is_local": True}])
async def test_nothing_is_known_where_nothing_is_to_be_kept(options: Mapping[str, Any]) -> None:
    table = MemoryLookup(TABLE)
    operator = opened(table, **options)
    for _ in range(2):
        await operator.process((rows(1, 1),))
    assert table.asked == [[(1,)], [(1,)]]


async def test_many_keys_are_asked_in_parts_some_at_once() -> None:
    many = pa.table({"id": range(1000), "name": [f"u{n}" for n in range(1000)]}, schema=USERS)
    gate = asyncio.Event()
    table = MemoryLookup(many, gate=gate)
    operator = opened(table, batch_keys=50, in_flight=3)
    working = asyncio.create_task(operator.process((rows(*range(999, 0, -1)),)))
    await until(lambda: table.most_at_once == 3)
    assert len(table.asked) == 3
    gate.set()
    found = rows_of(await working)
    assert [row[1:3] for row in found] == [(n, f"u{n}") for n in range(999, 0, -1)]
    assert (len(table.asked), table.most_at_once) == (20, 3)
    assert max(map(len, table.asked)) == 50


async def test_a_question_that_fails_is_asked_again() -> None:
    table, counters = MemoryLookup(TABLE, failures=2), LookupCounters()
    operator = opened(table, counters=counters, retries=2)
    assert len(rows_of(await operator.process((rows(1),)))) == 1
    assert (counters.lookups, counters.failures) == (3, 2)


async def test_a_table_that_fails_too_often_is_named() -> None:
    counters = LookupCounters()
    operator = opened(MemoryLookup(TABLE, failures=9), counters=counters, retries=2)
    with pytest.raises(LookupFailed, match="looking up rows of users failed 3 times: the table is not") as caught:
        await operator.process((rows(1),))
    assert (caught.value.domain, caught.value.retry) == (ErrorDomain.EXTERNAL, RetryHint.BACKOFF)
    assert counters.failures == 3


async def test_an_answer_that_takes_too_long_is_a_failure() -> None:
    table = MemoryLookup(TABLE, gate=asyncio.Event())
    operator = opened(table, retries=1, timeout=timedelta(milliseconds=5))
    with pytest.raises(LookupFailed, match=r"users failed 2 times: no answer within 0.005 s"):
        await operator.process((rows(1),))
    assert len(table.asked) == 2


class Broken(MemoryLookup):
    """Fails for a reason that stays."""

    def __init__(self, error: Exception) -> None:
        super().__init__(TABLE)
        self._error = error

    async def look_up(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        await super().look_up(keys)
        raise self._error


@pytest.mark.parametrize("error", [UserError("no such column"), FileError("users.csv", "no such file")])
async def test_a_failure_that_stays_is_not_tried_again(error: Exception) -> None:
    table = Broken(error)
    with pytest.raises((UserError, ExternalError), match="no such"):
        await opened(table).process((rows(1),))
    assert len(table.asked) == 1


@pytest.mark.parametrize(
    ("ids", "reason"), [([1, 1], "a key has several rows"), ([1, 7], "a row was found that is of none of the keys")]
)
async def test_rows_that_no_key_tells_apart_are_refused(ids: Sequence[int], reason: str) -> None:
    class Odd(MemoryLookup):
        async def look_up(self, keys: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch([pa.array(ids, pa.int64()), ["a", "b"]], schema=USERS)

    with pytest.raises(UserError, match=f"table users: {reason}"):
        await opened(Odd(TABLE)).process((rows(1, 2),))


async def test_a_failed_question_ends_the_others_and_none_is_kept() -> None:
    many = pa.table({"id": range(1000), "name": ["x"] * 1000}, schema=USERS)
    table = MemoryLookup(many, failures=1)
    operator = opened(table, batch_keys=10, in_flight=2, retries=0)
    with pytest.raises(LookupFailed):
        await operator.process((rows(*range(1000)),))
    asked = len(table.asked)
    assert asked < 100
    assert len(rows_of(await operator.process((rows(*range(1000)),)))) == 1000
    assert len(table.asked) == asked + 100


async def test_it_keeps_nothing_for_checkpoints_and_closes_its_table() -> None:
    table = MemoryLookup(TABLE)
    operator = opened(table)
    await operator.process((rows(1),))
    assert not operator.tables and not operator.holds_changes
    assert (await operator.flush(), await operator.advance(5)) == ((), ())
    await operator.close()
    assert table.closed
