"""A file is read once by all subtasks together, with right positions, and written in order."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.base import DEAD_LETTERS, LINES, Role, SourceBatch
from penstock.connectors.errors import BadRow, FileError
from penstock.connectors.formats.json import MAX_PAYLOAD_BYTES
from penstock.connectors.single_file import FileSinkOptions, FileSourceOptions, SingleFile
from penstock.connectors.testing import batches_of, rows_of, table_spec

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
METADATA = {"at": "file", "line": "line", "place": "offset"}
WITH_METADATA = pa.schema([*COLUMNS, ("at", pa.string()), ("line", pa.int64()), ("place", pa.int64())])


def lines(count: int) -> list[bytes]:
    return [json.dumps({"id": i, "text": "é" * (i % 7)}).encode() for i in range(count)]


async def read(
    path: Path, parallelism: int = 1, columns: pa.Schema = COLUMNS, batch_rows: int = 512, **options: str
) -> list[SourceBatch]:
    metadata = {name: kind for name, kind in METADATA.items() if name in columns.names}
    batches: list[SourceBatch] = []
    for subtask in range(parallelism):
        spec = table_spec(
            columns,
            {"path": str(path), **options},
            metadata=metadata,
            subtask=subtask,
            parallelism=parallelism,
            batch_rows=batch_rows,
        )
        batches += [batch async for batch in batches_of(SingleFile().open_source(spec))]
    return batches


def ids(batches: list[SourceBatch]) -> list[int]:
    return [value for batch in batches for value in batch.rows["id"].to_pylist()]


@pytest.mark.parametrize("parallelism", [1, 2, 7])
async def test_subtasks_read_every_line_once(tmp_path: Path, parallelism: int) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b"\n".join(lines(20_000)))
    batches = await read(path, parallelism)
    assert ids(batches) == list(range(20_000))
    assert len(batches) >= max(parallelism, 2)


async def test_more_subtasks_than_lines_and_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'{"id":1}\n')
    assert ids(await read(path, 5)) == [1]
    path.write_bytes(b"")
    assert await read(path, 2) == []


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_metadata_columns_have_the_place_of_a_row(tmp_path: Path, parallelism: int) -> None:
    path = tmp_path / "rows.json"
    content = [b"", *lines(3000), b"", *lines(3000)]
    path.write_bytes(b"\r\n".join(content))
    data = path.read_bytes()
    rows = pa.Table.from_batches([batch.rows for batch in await read(path, parallelism, WITH_METADATA)])
    assert set(rows["at"].to_pylist()) == {str(path)}
    assert rows["line"].to_pylist() == [number for number, line in enumerate(content, start=1) if line]
    for row in rows.take([0, 1, 2999, 3000, 5999]).to_pylist():
        assert json.loads(data[row["place"] :].split(b"\r\n")[0])["id"] == row["id"]


@pytest.mark.parametrize("parallelism", [1, 4])
async def test_a_bad_row_is_named_by_its_line_in_any_range(tmp_path: Path, parallelism: int) -> None:
    path = tmp_path / "rows.json"
    content = lines(9000)
    content[8100] = b'{"id":"x"}'
    path.write_bytes(b"\n".join(content))
    with pytest.raises(BadRow) as caught:
        await read(path, parallelism)
    assert (caught.value.position, caught.value.reason) == (f"{path}:8101", 'column id: "x" is not a BIGINT')
    assert caught.value.hint is not None


async def test_dropped_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'{"id":1}\n{\n{"id":2}\nx\n')
    [batch] = await read(path, bad_data="drop")
    assert (ids([batch]), batch.bad_rows, batch.dead_letters) == ([1, 2], 2, None)


async def test_dead_letters_have_position_reason_and_payload(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'{"id":1}\n\xff\n{"id":2}\n')
    [batch] = await read(path, bad_data="dead_letter", dead_letter="errors")
    assert (ids([batch]), batch.bad_rows) == ([1, 2], 1)
    assert batch.dead_letters is not None
    assert batch.dead_letters.schema == DEAD_LETTERS
    [letter] = batch.dead_letters.drop_columns(["_timestamp"]).to_pylist()
    reason = "not UTF-8: byte 0xff at 0"
    assert letter == {"source": "t", "position": f"{path}:2", "reason": reason, "payload": b"\xff"}


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_a_line_over_the_limit_is_a_bad_row_and_its_neighbours_are_read(tmp_path: Path, parallelism: int) -> None:
    path = tmp_path / "rows.json"
    long = json.dumps({"id": 5, "text": "x" * 500_000}).encode()
    path.write_bytes(b"\n".join([*lines(2000), long, *lines(2000)]))
    batches = await read(path, parallelism, max_line_bytes="100k", bad_data="dead_letter", dead_letter="errors")
    assert ids(batches) == [*range(2000), *range(2000)]
    letters = [batch.dead_letters for batch in batches if batch.dead_letters is not None]
    [letter] = pa.Table.from_batches(letters).to_pylist()
    assert letter["position"] == f"{path}:2001"
    assert letter["reason"] == "longer than 102400 bytes"
    assert letter["payload"] == long[:MAX_PAYLOAD_BYTES]


async def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'\xef\xbb\xbf{"id":1}\n{"id":2}\n')
    rows = pa.Table.from_batches([batch.rows for batch in await read(path, columns=WITH_METADATA)])
    assert (rows["id"].to_pylist(), rows["place"].to_pylist()) == ([1, 2], [3, 12])


async def test_rows_are_counted_when_no_column_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b"\n".join(lines(100)))
    [batch] = await read(path, columns=pa.schema([]))
    assert (batch.rows.num_rows, batch.rows.schema.names) == (100, ["_timestamp"])


async def test_a_cancelled_read_loses_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b"\n".join(lines(5000)))
    source = SingleFile().open_source(table_spec(COLUMNS, {"path": str(path)}))
    first = asyncio.create_task(source.read())
    await asyncio.sleep(0)
    first.cancel()
    assert (await rows_of(source))["id"].to_pylist() == list(range(5000))


async def test_a_missing_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file") as caught:
        await read(tmp_path / "missing.json")
    assert caught.value.path == str(tmp_path / "missing.json")
    with pytest.raises(FileError, match="is a folder"):
        await read(tmp_path)


def test_a_sink_has_one_subtask_and_a_source_any_number() -> None:
    assert SingleFile().max_parallelism(Role.SOURCE, FileSourceOptions(path="a")) is None
    assert SingleFile().max_parallelism(Role.SINK, FileSinkOptions(path="a")) == 1


async def write(path: Path, batches: list[list[int]], **options: str) -> None:
    spec = table_spec(COLUMNS, {"path": str(path), **options})
    sink = SingleFile().open_sink(spec)
    try:
        for batch in batches:
            rows = [{"id": value, "text": "x", "_timestamp": 0} for value in batch]
            await sink.write(pa.RecordBatch.from_pylist(rows, schema=spec.schema))
        await sink.flush()
    finally:
        await sink.close()


async def test_rows_are_written_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    batches = [
        list(range(start, start + size)) for start, size in ((0, 50_000), (50_000, 1), (50_001, 9999), (60_000, 1))
    ]
    await write(path, batches)
    assert [json.loads(line)["id"] for line in path.read_bytes().splitlines()] == list(range(60_001))


async def test_a_file_is_replaced_or_added_to(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    await write(path, [[1]])
    await write(path, [[2]])
    assert path.read_bytes() == b'{"id":2,"text":"x"}\n'
    await write(path, [[3]], append="true")
    assert path.read_bytes() == b'{"id":2,"text":"x"}\n{"id":3,"text":"x"}\n'
    await write(path, [])
    assert path.read_bytes() == b""


async def test_lines_are_written_as_they_are(tmp_path: Path) -> None:
    spec = replace(table_spec(COLUMNS, {"path": str(tmp_path / "out.json")}), schema=LINES)
    lines = [f'{{"id":{n}}}\n' for n in range(1000)]
    batch = pa.RecordBatch.from_arrays([pa.array(lines), pa.array([0] * 1000, pa.timestamp("us"))], schema=LINES)
    sink = SingleFile().open_sink(spec)
    for rows in (batch.slice(0, 10), batch.slice(10, 0), batch.slice(10)):
        await sink.write(rows)
    await sink.flush()
    assert (tmp_path / "out.json").read_text() == "".join(lines)
    await sink.close()


async def test_a_column_called_like_that_of_lines_is_a_column(tmp_path: Path) -> None:
    spec = table_spec(pa.schema([pa.field("_line", pa.string(), False)]), {"path": str(tmp_path / "out.json")})
    sink = SingleFile().open_sink(spec)
    await sink.write(pa.RecordBatch.from_pylist([{"_line": "x", "_timestamp": 0}], schema=spec.schema))
    await sink.flush()
    assert (tmp_path / "out.json").read_bytes() == b'{"_line":"x"}\n'
    await sink.close()


async def test_rows_are_visible_after_a_flush(tmp_path: Path) -> None:
    spec = table_spec(COLUMNS, {"path": str(tmp_path / "out.json")})
    sink = SingleFile().open_sink(spec)
    await sink.write(pa.RecordBatch.from_pylist([{"id": 1, "_timestamp": 0}], schema=spec.schema))
    await sink.flush()
    assert (tmp_path / "out.json").read_bytes() == b'{"id":1,"text":null}\n'
    await sink.close()


async def test_a_folder_is_never_created(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        await write(tmp_path / "missing" / "out.json", [[1]])
    assert caught.value.hint == f"the folder {tmp_path / 'missing'} does not exist; create it first"
    assert not (tmp_path / "missing").exists()


async def test_a_full_disk_is_an_error_of_the_file() -> None:
    with pytest.raises(FileError, match="/dev/full: no space left on device"):
        await write(Path("/dev/full"), [[1]])


async def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    await write(path, [list(range(1000)), list(range(1000, 3000))])
    assert ids(await read(path, parallelism=3)) == list(range(3000))
