"""A file is looked up by key whatever its format, and read again when it has changed."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from penstock.common.errors import UserError
from penstock.connectors import file_lookup
from penstock.connectors.errors import BadRow, FileError, UnsupportedType
from penstock.connectors.file_lookup import FileLookup, FileLookupOptions
from penstock.connectors.lookups import LookupSpec
from penstock.connectors.single_file import SingleFile

USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("score", pa.float64())])
JSON = '{"id": 1, "name": "ann", "score": 1.5}\n{"id": 3, "name": "", "score": null}\n{"id": 2, "name": null}\n'
CSV = 'name,id,score,more\nann,1,1.5,x\n"",3,,y\n,2,,z\n'
ROWS = {1: ("ann", 1.5), 2: (None, None), 3: ("", None)}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lookup(
    path: Path, schema: pa.Schema = USERS, key_columns: int = 1, clock: Clock | None = None, **options: str
) -> FileLookup:
    spec = LookupSpec("users", {"path": str(path), **options}, schema, key_columns)
    return FileLookup(spec, FileLookupOptions.model_validate(spec.options), clock or Clock())


def keys(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


async def found(table: FileLookup, *ids: int) -> dict[int, tuple[object, ...]]:
    rows = await table.look_up(keys(*ids))
    assert rows.schema == USERS
    return {row["id"]: (row["name"], row["score"]) for row in rows.to_pylist()}


def write(path: Path) -> Path:
    match path.suffix:
        case ".csv":
            path.write_text(CSV)
        case ".parquet":
            columns: dict[str, Any] = {"score": [1.5, None, None], "id": [1, 3, 2], "name": ["ann", "", None]}
            pa.parquet.write_table(pa.table(columns), path)
        case _:
            path.write_text(JSON)
    return path


@pytest.mark.parametrize("name", ["users.json", "users.csv", "users.parquet", "users"])
async def test_rows_are_found_by_key_in_every_format(tmp_path: Path, name: str) -> None:
    table = lookup(write(tmp_path / name))
    assert await found(table, 3, 1, 99, 2) == ROWS
    assert await found(table, 99) == {}
    assert await found(table, 2) == {2: (None, None)}
    assert table.loads == 1
    await table.close()


async def test_a_format_that_is_said_counts_more_than_the_ending(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    path.write_text(CSV)
    assert await found(lookup(path, format="csv"), 1) == {1: ("ann", 1.5)}


async def test_many_rows_are_found_by_keys_of_several_columns(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string(), nullable=False), ("n", pa.int64())]
    )
    path = tmp_path / "pairs.parquet"
    pairs = [(a, f"b{b}") for a in range(100) for b in range(100)]
    table = pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "n": range(len(pairs))})
    pa.parquet.write_table(table, path)
    asked = [(7, "b7"), (99, "b99"), (0, "b0"), (7, "b100"), (100, "b1")]
    batch = pa.record_batch({"a": pa.array([a for a, _ in asked], pa.int32()), "b": [b for _, b in asked]})
    rows = await lookup(path, schema, 2).look_up(batch)
    assert sorted(row["n"] for row in rows.to_pylist()) == [0, 707, 9999]


async def test_an_empty_file_has_no_row(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text("")
    assert await found(lookup(path), 1) == {}


async def test_a_changed_file_is_read_again_after_the_time_to_live(tmp_path: Path) -> None:
    path, clock = write(tmp_path / "users.json"), Clock()
    table = lookup(path, clock=clock, cache_ttl="10s")
    assert await found(table, 1) == {1: ("ann", 1.5)}
    path.write_text('{"id": 1, "name": "bob", "score": 2}')
    clock.now += 9.9
    assert await found(table, 1) == {1: ("ann", 1.5)}
    clock.now += 0.2
    assert await found(table, 1, 2) == {1: ("bob", 2.0)}
    clock.now += 60
    assert await found(table, 1) == {1: ("bob", 2.0)}
    assert table.loads == 2


async def test_a_file_that_is_replaced_by_one_of_the_same_time_and_size_is_read_again(tmp_path: Path) -> None:
    path, clock = write(tmp_path / "users.json"), Clock()
    table = lookup(path, clock=clock, cache_ttl="0s")
    assert await found(table, 1) == {1: ("ann", 1.5)}
    other = tmp_path / "other"
    other.write_text(JSON.replace("ann", "eve"))
    before = path.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert await found(table, 1) == {1: ("eve", 1.5)}


async def test_a_file_that_takes_longer_than_a_question_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, load = threading.Event(), file_lookup._load

    def slow(*arguments: Any) -> Any:
        assert go_on.wait(10)
        return load(*arguments)

    monkeypatch.setattr(file_lookup, "_load", slow)
    table = lookup(write(tmp_path / "users.json"))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(table.look_up(keys(1)), 0.01)
    go_on.set()
    one, other = await asyncio.gather(found(table, 1), found(table, 2))
    assert one | other == {1: ("ann", 1.5), 2: (None, None)}
    assert table.loads == 1
    await table.close()


async def test_a_key_that_is_there_twice_is_refused_with_its_value(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text('{"id": 7}\n{"id": 8}\n{"id": 7}\n')
    with pytest.raises(UserError, match=r"table users: .*users.json has several rows with id = 7"):
        await lookup(path).look_up(keys(1))


async def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text('{"id": 7}\n{"id": "x"}\n')
    with pytest.raises(BadRow, match=r"users\.json:2"):
        await lookup(path).look_up(keys(1))


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "id,name\n1,ann\n"), ("b.csv", "id,name,score\nx,ann,1\n"), ("c.csv", "")]
)
async def test_a_table_that_does_not_fit_its_columns_is_refused(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError, match=f"table users: .*{name} cannot be read"):
        await lookup(path).look_up(keys(1))


async def test_a_parquet_file_without_a_column_or_with_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    for columns in ({"id": [1]}, {"id": ["x"], "name": ["a"], "score": [1.0]}):
        pa.parquet.write_table(pa.table(columns), path)
        with pytest.raises(UserError, match=r"table users: .*users\.parquet cannot be read"):
            await lookup(path).look_up(keys(1))


async def test_a_missing_value_of_a_column_that_is_not_null_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id,name\n1,\n")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])
    with pytest.raises(UserError, match="column name is NOT NULL"):
        await lookup(path, schema).look_up(keys(1))


async def test_a_missing_file_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        await lookup(tmp_path / "nowhere.csv").look_up(keys(1))


async def test_a_csv_file_has_all_flat_types(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("flag", pa.bool_()),
            ("cost", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("clock", pa.time64("ns")),
        ]
    )
    path = tmp_path / "types.csv"
    path.write_text("id,flag,cost,day,at,clock\n1,true,12.50,2024-03-01,2024-03-01T10:00:00.5,10:00:01\n")
    rows = await lookup(path, schema).look_up(keys(1))
    [row] = rows.to_pylist()
    assert row == {
        "id": 1,
        "flag": True,
        "cost": Decimal("12.50"),
        "day": date(2024, 3, 1),
        "at": datetime(2024, 3, 1, 10, 0, 0, 500_000),  # noqa: DTZ001 - without a zone
        "clock": time(10, 0, 1),
    }


def test_columns_that_a_format_cannot_hold_are_refused_before_a_job_runs() -> None:
    nested = pa.schema([("tags", pa.list_(pa.string()))])
    options = FileLookupOptions(path="users.csv")
    with pytest.raises(UnsupportedType, match="column tags"):
        SingleFile().check_lookup(options, USERS, nested)
    SingleFile().check_lookup(FileLookupOptions(path="users.json"), USERS, nested)
