"""What state tables write of each epoch is, together, what they held at its barrier."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.program import HASH_COLUMN
from penstock.worker.state import tables
from penstock.worker.state.keyed import KeyedState, loaded
from penstock.worker.state.tables import ExpiringTimeKey, Frozen, GlobalKeyed, kept_rows, of_last, values_of

ROWS = pa.schema([("n", pa.int64()), ("_hash", pa.int64())])
TIMES = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us"))])


def batch(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n, "_hash": key} for n, key in rows], ROWS)


def content(state: KeyedState) -> list[tuple[int, int]]:
    rows = state.fetch(np.arange(20))
    return sorted(zip(rows.column("_hash").to_pylist(), rows.column("n").to_pylist(), strict=True))


changes = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.dictionaries(st.integers(0, 19), st.lists(st.integers(0, 99), max_size=3))),
        st.tuples(st.sampled_from(["checkpoint", "failed checkpoint", "restore"]), st.just({})),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=200)
@given(changes, st.sampled_from([0, 3, 1 << 17]))
def test_keyed_state_is_what_its_files_say(moves: list[tuple[str, dict[int, list[int]]]], least: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_LEAST_ROWS", least)  # so that all is noted instead of changes, always or never
        state = KeyedState(ROWS)
        state.table.begin()
        files: list[pa.Table] = []
        number = 0
        for kind, put in moves:
            match kind:
                case "put":
                    rows = [(number := number + 1, key) for key, count in put.items() for _ in count]
                    state.replace(np.array(sorted(put), np.int64), batch(rows))
                case "failed checkpoint":
                    state.table.put_back(state.table.freeze())
                case _:
                    files = written(files, state.table.freeze())
                    assert content(restored(files)) == content(state)
                    if kind == "restore":
                        state = restored(files)


def written(files: list[pa.Table], frozen: Frozen) -> list[pa.Table]:
    return [*([] if frozen.is_whole else files), *rows_of(frozen)]


def rows_of(frozen: Frozen) -> list[pa.Table]:
    """What a file gets, if anything."""
    parts = list(frozen.parts())
    return [pa.concat_tables(parts)] if parts else []


def restored(files: list[pa.Table]) -> KeyedState:
    state = KeyedState(ROWS)
    masks = of_last([rows[HASH_COLUMN].to_numpy() for rows in files])
    for rows, mask in zip(files, masks, strict=True):
        loaded(state, kept_rows(rows, mask, tombstones=False), ROWS)
    state.table.begin()
    return state


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=6))
def test_a_hash_is_kept_where_it_was_last(files: list[list[int]]) -> None:
    masks = of_last([np.array(hashes, np.int64) for hashes in files])
    later = [set().union(*files[number + 1 :]) for number in range(len(files))]
    expected = [[each not in behind for each in hashes] for hashes, behind in zip(files, later, strict=True)]
    assert [mask.tolist() for mask in masks] == expected


def test_rows_that_came_behind_the_barrier_are_not_in_the_checkpoint() -> None:
    state = KeyedState(ROWS)
    state.table.begin()
    state.replace(np.array([1, 2]), batch([(1, 1), (2, 2)]))
    frozen = state.table.freeze()
    state.replace(np.array([1, 3]), batch([(9, 1), (9, 3)]))
    assert content(restored(written([], frozen))) == [(1, 1), (2, 2)]


def test_all_rows_are_frozen_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_LEAST_ROWS", 0)
    state = KeyedState(ROWS)
    state.table.begin()
    for number in range(5):
        state.replace(np.array([1, 2]), batch([(number, 1), (number, 1), (number, 2)]))
    frozen = state.table.freeze()
    assert frozen.is_whole
    state.replace(np.array([1]), batch([]))
    assert content(restored(written([], frozen))) == [(1, 4), (1, 4), (2, 4)]


def test_when_rows_came_is_kept_with_them() -> None:
    state = KeyedState(ROWS, ttl_us=100)
    state.table.begin()
    state.expire(1000)
    state.replace(np.array([1]), batch([(1, 1)]))
    state.expire(1090)
    state.replace(np.array([2]), batch([(2, 2)]))
    (rows,) = rows_of(state.table.freeze())
    again = KeyedState(ROWS, ttl_us=100)
    again.expire(1090)
    loaded(again, rows, ROWS)
    again.expire(1120)
    assert content(again) == [(2, 2)]


def timed(*times: int) -> pa.RecordBatch:
    column = pa.array(times, pa.int64())
    return pa.record_batch([column, column.cast(pa.timestamp("us"))], schema=TIMES)


def test_rows_by_time_are_written_until_they_are_gone() -> None:
    table = ExpiringTimeKey("at")
    table.add([timed(1)])  # before anybody wants to know
    table.begin()
    table.add([timed(10, 20), timed(30)])
    table.expire(20)
    first = table.freeze()
    table.add([timed(40)])
    table.expire(30)
    second = table.freeze()
    assert [rows["n"].to_pylist() for frozen in (first, second) for rows in rows_of(frozen)] == [[20, 30], [40]]
    assert second.expired_before == 30
    assert not rows_of(table.freeze())


def test_what_could_not_be_written_is_in_the_next_checkpoint() -> None:
    table = ExpiringTimeKey("at")
    table.begin()
    table.add([timed(1)])
    failed = table.freeze()
    table.add([timed(2)])
    table.put_back(failed)
    (rows,) = rows_of(table.freeze())
    assert rows["n"].to_pylist() == [1, 2]


def test_values_are_written_whole() -> None:
    values = {"a": b"1", "b": b""}
    frozen = GlobalKeyed(lambda: values).freeze()
    values["a"] = b"2"
    (rows,) = rows_of(frozen)
    assert values_of(rows) == {"a": b"1", "b": b""} and frozen.is_whole


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([pa.field("start", pa.timestamp("us"), nullable=False), pa.field("end", pa.timestamp("us"))]),
        pa.struct([pa.field("inner", pa.struct([pa.field("name", pa.string(), nullable=False)]), nullable=False)]),
        pa.struct([pa.field("cost", pa.decimal128(10, 2), nullable=False), pa.field("ok", pa.bool_(), nullable=False)]),
        pa.struct([pa.field("tags", pa.list_(pa.string()), nullable=False)]),
        pa.list_(pa.field("item", pa.int64(), nullable=False)),
        pa.binary(),
    ],
    ids=str,
)
def test_tombstones_of_any_type_can_be_written(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("value", kind), pa.field(HASH_COLUMN, pa.int64())])
    state = KeyedState(schema)
    state.table.begin()
    state.replace(np.array([1, 2]), pa.record_batch([pa.nulls(0, kind), pa.array([], pa.int64())], schema=schema))
    (rows,) = rows_of(state.table.freeze())
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    written = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert written[HASH_COLUMN].to_pylist() == [1, 2] and written[tables.TOMBSTONE_COLUMN].to_pylist() == [True, True]
