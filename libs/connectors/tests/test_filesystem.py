"""All files that match are read once, each in its order, whoever is held, with few of them open."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.base import DEAD_LETTERS, Role, Source, SourceBatch
from penstock.connectors.errors import BadRow, FileError
from penstock.connectors.files_source import MAX_OPEN_FILES
from penstock.connectors.filesystem import Filesystem, FilesystemSourceOptions, find_files
from penstock.connectors.registry import connector_named, parse_options
from penstock.connectors.testing import batches_of, table_spec

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
METADATA = {"at": "file", "line": "line", "place": "offset"}
WITH_METADATA = pa.schema([*COLUMNS, ("at", pa.string()), ("line", pa.int64()), ("place", pa.int64())])


def lines(ids: Sequence[int]) -> bytes:
    return b"".join(json.dumps({"id": number, "text": "é" * (number % 50)}).encode() + b"\n" for number in ids)


def write_files(folder: Path, files: int, rows: int) -> None:
    """Files of consecutive ids."""
    for number in range(files):
        (folder / f"{number:04}.json").write_bytes(lines(range(number * rows, (number + 1) * rows)))


def opened(
    path: Path | str, subtask: int = 0, parallelism: int = 1, columns: pa.Schema = COLUMNS, **options: str
) -> Source:
    metadata = {name: kind for name, kind in METADATA.items() if name in columns.names}
    spec = table_spec(
        columns, {"path": str(path), **options}, metadata=metadata, subtask=subtask, parallelism=parallelism
    )
    return Filesystem().open_source(spec)


async def read(
    path: Path | str, parallelism: int = 1, columns: pa.Schema = COLUMNS, **options: str
) -> list[SourceBatch]:
    sources = [opened(path, subtask, parallelism, columns, **options) for subtask in range(parallelism)]
    return [batch for source in sources async for batch in batches_of(source)]


def ids(batches: Sequence[SourceBatch]) -> list[int]:
    return [value for batch in batches for value in batch.rows["id"].to_pylist()]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
async def test_subtasks_read_every_row_of_every_file_once(tmp_path: Path, parallelism: int) -> None:
    write_files(tmp_path, files=5, rows=5000)
    assert sorted(ids(await read(tmp_path, parallelism))) == list(range(25_000))


async def test_files_are_dealt_to_subtasks_by_their_place(tmp_path: Path) -> None:
    write_files(tmp_path, files=5, rows=1)
    sources = [opened(tmp_path, subtask, 2) for subtask in range(2)]
    assert [source.partitions for source in sources] == [3, 2]
    assert [[ids([batch])[0] async for batch in batches_of(source)] for source in sources] == [[0, 2, 4], [1, 3]]


async def test_a_subtask_without_a_file_ends_at_once(tmp_path: Path) -> None:
    write_files(tmp_path, files=1, rows=1)
    source = opened(tmp_path, subtask=1, parallelism=2)
    assert (source.partitions, await source.read()) == (0, None)
    await source.close()


async def test_a_partition_is_one_file_in_its_order_and_says_its_end(tmp_path: Path) -> None:
    write_files(tmp_path, files=3, rows=20_000)
    (tmp_path / "0001.json").write_bytes(b"")
    batches = await read(tmp_path)
    for partition, expected in enumerate([list(range(20_000)), [], list(range(40_000, 60_000))]):
        own = [batch for batch in batches if batch.partition == partition]
        assert ids(own) == expected
        assert [batch.ended for batch in own] == [()] * (len(own) - 1) + [(partition,)]


async def test_every_file_is_read_a_little_before_any_is_read_on(tmp_path: Path) -> None:
    write_files(tmp_path, files=MAX_OPEN_FILES * 3, rows=3000)
    batches = await read(tmp_path)
    first = batches[: MAX_OPEN_FILES * 3]
    assert [batch.partition for batch in first] == list(range(MAX_OPEN_FILES * 3))
    assert all(batch.rows.num_rows < 2500 for batch in first)


async def test_held_files_wait_and_lose_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, files=20, rows=6000)
    source = opened(tmp_path)
    batches = []
    for allowed in reversed(range(20)):
        held = frozenset(range(20)) - {allowed}
        while (batch := await source.read(held)) is not None:
            batches.append(batch)
            assert batch.partition == allowed
            if batch.ended:
                break
    assert await source.read() is None
    await source.close()
    assert ids(batches) == [number for file in reversed(range(20)) for number in range(file * 6000, file * 6000 + 6000)]


async def test_a_read_that_is_cancelled_loses_nothing_whoever_is_held_next(tmp_path: Path) -> None:
    write_files(tmp_path, files=12, rows=6000)
    source = opened(tmp_path)
    batches: list[SourceBatch] = []
    turn = 0
    while True:
        turn += 1
        reading = asyncio.ensure_future(source.read(frozenset({turn % 12, (turn + 5) % 12})))
        await asyncio.sleep(0)
        if turn % 3 and not reading.done():
            reading.cancel()
            await asyncio.wait([reading])
            continue
        if (batch := await reading) is None:
            break
        batches.append(batch)
    await source.close()
    assert sorted(ids(batches)) == list(range(72_000))
    for partition in range(12):
        own = ids([batch for batch in batches if batch.partition == partition])
        assert own == sorted(own)


async def test_few_files_are_open_however_many_there_are(tmp_path: Path) -> None:
    write_files(tmp_path, files=60, rows=2500)
    source = opened(tmp_path)
    most = 0
    while await source.read() is not None:
        most = max(most, _open_files(tmp_path))
    await source.close()
    assert 1 < most <= MAX_OPEN_FILES


def _open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # one was open for the listing itself
            count += link.readlink().is_relative_to(folder)
    return count


async def test_metadata_columns_have_the_place_of_a_row(tmp_path: Path) -> None:
    write_files(tmp_path, files=2, rows=4000)
    rows = pa.Table.from_batches([batch.rows for batch in await read(tmp_path, columns=WITH_METADATA)])
    assert rows.num_rows == 8000
    contents = _contents(tmp_path)
    for row in rows.take([0, 1, 3999, 4000, 7999]).to_pylist():
        content = contents[row["at"]]
        assert json.loads(content[row["place"] :].split(b"\n")[0])["id"] == row["id"]
        assert content[: row["place"]].count(b"\n") + 1 == row["line"] == row["id"] % 4000 + 1


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.iterdir()}


async def test_a_bad_row_is_named_by_its_file_and_line(tmp_path: Path) -> None:
    write_files(tmp_path, files=3, rows=4000)
    with (tmp_path / "0001.json").open("ab") as file:
        file.write(b'{"id": "seven"}\n')
    with pytest.raises(BadRow) as caught:
        await read(tmp_path)
    assert caught.value.position == f"{tmp_path}/0001.json:4001"


@pytest.mark.parametrize("policy", [{"bad_data": "drop"}, {"bad_data": "dead_letter", "dead_letter": "bad"}])
async def test_bad_rows_of_all_files_are_counted_and_the_others_are_read(
    tmp_path: Path, policy: dict[str, str]
) -> None:
    for name in ("a.json", "b.json"):
        long = b'{"id": 5, "text": "' + b"x" * 300_000 + b'"}'
        (tmp_path / name).write_bytes(b'\xef\xbb\xbf{"id": 1}\nnonsense\n' + long + b'\n\n{"id": 2}\n{"text": "no id"}')
    batches = await read(tmp_path, 1, COLUMNS, max_line_bytes="1KiB", **policy)
    assert sorted(ids(batches)) == [1, 1, 2, 2]
    assert sum(batch.bad_rows for batch in batches) == 6
    letters = [batch.dead_letters for batch in batches if batch.dead_letters is not None]
    if policy["bad_data"] == "drop":
        assert letters == []
    else:
        table = pa.Table.from_batches(letters, DEAD_LETTERS)
        expected = {f"{tmp_path}/{name}:{line}" for name in ("a.json", "b.json") for line in (2, 3, 6)}
        assert set(table["position"].to_pylist()) == expected
        assert max(map(len, table["payload"].to_pylist())) < 100_000


def test_a_pattern_finds_files_by_name_and_in_folders(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "a.csv", ".hidden.json", "deep/er/c.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = {
        pattern: [os.path.relpath(path, tmp_path) for path in find_files(f"{tmp_path}/{pattern}")]
        for pattern in ("", "*.json", "**/*.json", "?.csv", "b.json")
    }
    assert found == {
        "": ["a.csv", "a.json", "b.json"],
        "*.json": ["a.json", "b.json"],
        "**/*.json": ["a.json", "b.json", "deep/er/c.json"],
        "?.csv": ["a.csv"],
        "b.json": ["b.json"],
    }


@pytest.mark.parametrize(
    ("path", "message"),
    [("", "there is no file in this folder"), ("*.json", "no file matches"), ("nowhere", "no file matches")],
)
async def test_an_empty_match_is_an_error_with_a_hint(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(FileError, match=message) as caught:
        await opened(tmp_path / path).read()
    assert caught.value.hint is not None and "clicks/**/*.json" in caught.value.hint


async def test_a_file_that_vanishes_is_an_error_that_stays(tmp_path: Path) -> None:
    write_files(tmp_path, files=2, rows=1)
    source = opened(tmp_path)
    assert source.partitions == 2
    (tmp_path / "0001.json").unlink()
    assert ids([batch for batch in [await source.read()] if batch is not None]) == [0]
    for _ in range(2):
        with pytest.raises(FileError, match=r"0001\.json: no such file"):
            await source.read()
    await source.close()


def test_its_options_are_those_of_a_single_file() -> None:
    connector = connector_named("filesystem")
    options = parse_options(connector, Role.SOURCE, {"path": "a", "bad_data": "drop", "max_line_bytes": "1MiB"})
    assert isinstance(options, FilesystemSourceOptions)
    assert (options.path, options.format, options.max_line_bytes) == ("a", "json", 1024 * 1024)
