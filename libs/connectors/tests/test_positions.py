"""Whenever a source's positions are taken, and at whatever parallelism it goes on: each row is read once."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.base import Source, SourceBatch
from penstock.connectors.errors import BadRow, FileError
from penstock.connectors.registry import connector_named
from penstock.connectors.testing import table_spec

Restored = Mapping[str, bytes] | None
Open = Callable[[int, int, Restored], Source]


@dataclass(frozen=True)
class Run:
    """One life of a job: reads before its positions are taken, and some after, whose rows are lost."""

    parallelism: int
    reads: Sequence[tuple[int, frozenset[int]]]
    """A subtask, and what it holds."""
    lost: Sequence[int]


SUBTASKS = st.integers(0, 4)
HELD = st.frozensets(st.integers(0, 5), max_size=3)
RUNS = st.lists(
    st.builds(
        Run,
        parallelism=st.integers(1, 5),
        reads=st.lists(st.tuples(SUBTASKS, HELD), max_size=8),
        lost=st.lists(SUBTASKS, max_size=3),
    ),
    max_size=5,
)


async def read_in_lives(open_source: Open, runs: Sequence[Run], last_parallelism: int) -> list[SourceBatch]:
    """What counts of all that is read: before the positions of each life, and all that the last one has."""
    batches: list[SourceBatch] = []
    restored: Restored = None
    for run in runs:
        sources = [open_source(subtask, run.parallelism, restored) for subtask in range(run.parallelism)]
        for subtask, held in run.reads:
            batch = await sources[subtask % run.parallelism].read(held)
            batches += [] if batch is None else [batch]
        restored = union(sources)
        for subtask in run.lost:
            await sources[subtask % run.parallelism].read()
        for source in sources:
            await source.close()
    sources = [open_source(subtask, last_parallelism, restored) for subtask in range(last_parallelism)]
    for source in sources:
        batches += await rest_of(source)
    assert open_source(0, 1, union(sources)).partitions == 0
    return batches


async def rest_of(source: Source) -> list[SourceBatch]:
    """What a source still has; every partition says its end, or the source does."""
    ended: list[int] = []
    batches = []
    while (batch := await source.read()) is not None:
        assert batch.partition not in ended
        ended += batch.ended
        batches.append(batch)
    await source.close()
    return batches


def union(sources: Sequence[Source]) -> dict[str, bytes]:
    """The positions of all subtasks, which are of different partitions, and of all that they read."""
    together: dict[str, bytes] = {}
    for source in sources:
        positions = source.positions()
        assert not together.keys() & positions.keys()
        assert {source.partition_name(number) for number in range(source.partitions)} <= positions.keys()
        together |= positions
    return together


def values(batches: Sequence[SourceBatch], column: str) -> list[int]:
    return [value for batch in batches for value in batch.rows[column].to_pylist()]


@given(RUNS, st.integers(1, 5), st.integers(1, 40), st.sampled_from([None, 10_000_000.0]), st.integers(1, 300))
@settings(max_examples=80, deadline=None)
def test_impulse_gives_each_row_once(
    runs: list[Run], last: int, batch_rows: int, rate: float | None, count: int
) -> None:
    options = {"message_count": str(count), "start_time": "1970-01-01", "event_time_interval": "1ms"}
    options |= {} if rate is None else {"event_rate": str(rate)}

    def opened(subtask: int, parallelism: int, restored: Restored) -> Source:
        columns = pa.schema([pa.field("counter", pa.int64(), nullable=False)])
        spec = table_spec(
            columns, options, subtask=subtask, parallelism=parallelism, batch_rows=batch_rows, restored=restored
        )
        return connector_named("impulse").open_source(spec)

    batches = asyncio.run(read_in_lives(opened, runs, last))
    assert sorted(values(batches, "counter")) == list(range(count))
    for batch in batches:
        times = batch.rows["_timestamp"].cast(pa.int64()).to_pylist()
        assert times == [counter * 1000 for counter in batch.rows["counter"].to_pylist()]


@given(RUNS, st.integers(1, 5), st.integers(1, 120), st.integers(1, 1500))
@settings(max_examples=50, deadline=None)
def test_nexmark_gives_each_event_once(runs: list[Run], last: int, batch_rows: int, count: int) -> None:
    options = {"events": str(count), "base_time": "1970-01-01"}

    def opened(subtask: int, parallelism: int, restored: Restored) -> Source:
        spec = table_spec(
            pa.schema([]), options, subtask=subtask, parallelism=parallelism, batch_rows=batch_rows, restored=restored
        )
        return connector_named("nexmark").open_source(spec)

    batches = asyncio.run(read_in_lives(opened, runs, last))
    numbers = [time // 100 for batch in batches for time in batch.rows["_timestamp"].cast(pa.int64()).to_pylist()]
    assert sorted(numbers) == list(range(count))


COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.string()), ("line", pa.int64()), ("place", pa.int64())])
METADATA = {"at": "file", "line": "line", "place": "offset"}
LINES = st.lists(st.sampled_from([0, 1, 30, 300, 3000]), max_size=60)
"""How long the texts of lines are."""


def content(first: int, texts: Sequence[int], *, with_end: bool) -> bytes:
    lines = [json.dumps({"id": first + i, "text": "x" * size}).encode() for i, size in enumerate(texts)]
    return b"\n".join(lines) + (b"\n" if with_end and lines else b"")


def file_opener(connector: str, path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Sources that read very small blocks, and take lines of more than 1000 bytes for bad rows."""
    monkeypatch.setattr("penstock.connectors.file_range._SMALLEST_BLOCK", block_bytes)
    monkeypatch.setattr("penstock.connectors.files_source._FIRST_BLOCK", block_bytes // 2)
    monkeypatch.setattr("penstock.connectors.files_source.MAX_OPEN_FILES", 2)
    options = {"path": str(path), "max_line_bytes": "1000B", "bad_data": "dead_letter", "dead_letter": "bad"}

    def opened(subtask: int, parallelism: int, restored: Restored) -> Source:
        spec = table_spec(
            COLUMNS,
            options,
            metadata=METADATA,
            subtask=subtask,
            parallelism=parallelism,
            batch_rows=1,
            restored=restored,
        )
        return connector_named(connector).open_source(spec)

    return opened


def check_lines(batches: Sequence[SourceBatch], files: Mapping[str, bytes]) -> None:
    """Each line of each file was read once, as a row with its place or as a dead letter with its position."""
    expected_rows, expected_letters = set(), set()
    for path, data in files.items():
        place = 0
        for number, line in enumerate(data.splitlines(keepends=True), start=1):
            if len(line.rstrip(b"\n")) > 1000:
                expected_letters.add(f"{path}:{number}")
            else:
                expected_rows.add((json.loads(line)["id"], path, number, place))
            place += len(line)
    rows = [tuple(row.values())[:4] for batch in batches for row in batch.rows.to_pylist()]
    letters = [
        position for batch in batches if batch.dead_letters for position in batch.dead_letters["position"].to_pylist()
    ]
    assert (len(rows), set(rows)) == (len(expected_rows), expected_rows)
    assert (len(letters), set(letters)) == (len(expected_letters), expected_letters)


@given(RUNS, st.integers(1, 5), LINES, st.booleans(), st.sampled_from([2, 64, 700, 5000]))
@settings(max_examples=120, deadline=None)
def test_a_single_file_gives_each_line_once(
    runs: list[Run], last: int, texts: list[int], with_end: bool, block_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        path = Path(folder) / "a@b.json"
        path.write_bytes(content(0, texts, with_end=with_end))
        opened = file_opener("single_file", path, block_bytes, monkeypatch)
        batches = asyncio.run(read_in_lives(opened, runs, last))
        check_lines(batches, {str(path): path.read_bytes()})


@given(RUNS, st.integers(1, 5), st.lists(LINES, min_size=1, max_size=7), st.sampled_from([2, 64, 700, 5000]))
@settings(max_examples=80, deadline=None)
def test_a_folder_gives_each_line_of_each_file_once(
    runs: list[Run], last: int, files: list[list[int]], block_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        for number, texts in enumerate(files):
            (Path(folder) / f"{number}.json").write_bytes(content(number * 100, texts, with_end=number % 2 == 0))
        opened = file_opener("filesystem", Path(folder), block_bytes, monkeypatch)
        batches = asyncio.run(read_in_lives(opened, runs, last))
        check_lines(batches, {str(path): path.read_bytes() for path in Path(folder).iterdir()})


def opened(
    connector: str, path: Path, restored: Restored = None, subtask: int = 0, parallelism: int = 1, **options: str
) -> Source:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    spec = table_spec(
        columns, {"path": str(path), **options}, subtask=subtask, parallelism=parallelism, restored=restored
    )
    return connector_named(connector).open_source(spec)


def numbered(first: int, count: int) -> bytes:
    return content(first, [100] * count, with_end=True)


async def first_ids(source: Source, reads: int = 1) -> list[int]:
    return values([batch for _ in range(reads) if (batch := await source.read()) is not None], "id")


async def test_a_source_that_has_not_read_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 10_000))
    source = opened("single_file", path)
    read = await first_ids(source)
    for _ in range(3):
        restored = source.positions()
        await source.close()
        source = opened("single_file", path, restored)
    assert read + values(await rest_of(source), "id") == list(range(10_000))


async def test_what_is_left_of_a_file_is_shared_evenly(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 30_000))
    source = opened("single_file", path)
    read = await first_ids(source, 3)
    shares = [
        values(await rest_of(opened("single_file", path, source.positions(), subtask, 3)), "id") for subtask in range(3)
    ]
    await source.close()
    assert read + [number for share in shares for number in share] == list(range(30_000))
    assert max(map(len, shares)) - min(map(len, shares)) <= 50


async def test_partitions_keep_their_names_when_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 30_000))
    sources = [opened("single_file", path, None, subtask, 3) for subtask in range(3)]
    for source in sources:
        await source.read()
    restored = union(sources)
    again = [opened("single_file", path, restored, subtask, 3) for subtask in range(3)]
    assert [source.partition_name(0) for source in again] == [source.partition_name(0) for source in sources]
    assert [source.positions() for source in again] == [source.positions() for source in sources]
    assert sources[0].partition_name(0) == f"{path}@0-{path.stat().st_size // 3}"
    for source in (*sources, *again):
        await source.close()


@pytest.mark.parametrize("connector", ["single_file", "filesystem"])
async def test_a_file_that_has_become_shorter_is_an_error_that_names_it(tmp_path: Path, connector: str) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 30_000))
    source = opened(connector, path)
    await source.read()
    restored = source.positions()
    await source.close()
    path.write_bytes(numbered(0, 1))
    again = opened(connector, path, restored)
    with pytest.raises(
        FileError, match=r"the file has become shorter: it has 122 bytes, and .* had been read"
    ) as caught:
        await again.read()
    assert caught.value.path == str(path)
    with pytest.raises(FileError, match="has become shorter"):
        await again.read()
    await again.close()


async def test_a_file_cut_behind_its_position_is_an_error_where_its_end_was_known(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 30_000))
    source = opened("single_file", path)
    await source.read()
    restored = source.positions()
    await source.close()
    path.write_bytes(numbered(0, 29_999))
    again = opened("single_file", path, restored)
    with pytest.raises(FileError, match=r"has become shorter: .*, and the job started with"):
        await again.read()
    await again.close()


@pytest.mark.parametrize("connector", ["single_file", "filesystem"])
async def test_a_file_that_is_gone_is_an_error_unless_it_was_read(tmp_path: Path, connector: str) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 30_000))
    source = opened(connector, path)
    await source.read()
    middle = source.positions()
    await rest_of(source)
    end = source.positions()
    path.unlink()
    again = opened(connector, path, middle)
    with pytest.raises(FileError, match="no such file") as caught:
        await again.read()
    assert caught.value.path == str(path)
    assert caught.value.hint is not None and "goes on behind them" in caught.value.hint
    await again.close()
    assert await rest_of(opened(connector, path, end)) == []


async def test_files_that_came_are_read_and_those_that_grew_after_their_end_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(numbered(0, 10))
    source = opened("filesystem", tmp_path)
    assert await first_ids(source, 2) == list(range(10))
    restored = source.positions()
    await source.close()
    with (tmp_path / "a.json").open("ab") as file:
        file.write(numbered(10, 10))
    for number in range(5):
        (tmp_path / f"b{number}.json").write_bytes(numbered(100 + number, 1))
    sources = [opened("filesystem", tmp_path, restored, subtask, 3) for subtask in range(3)]
    ids = [number for source in sources for number in values(await rest_of(source), "id")]
    assert sorted(ids) == list(range(100, 105))
    assert opened("filesystem", tmp_path, union(sources)).partitions == 0


async def test_a_job_does_not_go_on_with_another_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 10))
    source = opened("single_file", path)
    restored = source.positions()
    await source.close()
    with pytest.raises(FileError, match=r"rows\.json: the job was at this file, and its table is now"):
        opened("single_file", tmp_path / "other.json", restored).positions()


async def test_a_bad_row_behind_a_position_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(numbered(0, 20_000) + b"nonsense\n")
    source = opened("single_file", path)
    await source.read()
    restored = source.positions()
    await source.close()
    last = opened("single_file", path, restored, 2, 3)
    with pytest.raises(BadRow, match=r"rows\.json:20001:"):
        await rest_of(last)
    await last.close()
