from __future__ import annotations

import pytest

from penstock.common.checkpoint.metadata import (
    CorruptSnapshot,
    Snapshot,
    check_files,
    is_complete,
    read_snapshot,
    refers,
    write_metadata,
    write_operator,
)
from penstock.common.checkpoint.paths import Epoch, checkpoint_path, metadata_path, savepoint_path, table_path
from penstock.common.checkpoint.settings import CheckpointSettings, open_checkpoints
from penstock.common.config import load_config
from penstock.common.program import OperatorKey
from penstock.common.proto.checkpoint_pb2 import (
    CheckpointMetadata,
    OperatorMetadata,
    StateFile,
    SubtaskState,
    TableState,
)
from penstock.common.storage import Storage
from penstock.common.testing import memory_storage

PATH = checkpoint_path(Epoch(7))
OLD = table_path(checkpoint_path(Epoch(3)), OperatorKey("op"), "offsets", 0)
NEW = table_path(PATH, OperatorKey("op"), "offsets", 1)


async def written(storage: Storage) -> Snapshot:
    tables = [TableState(name="offsets", files=[StateFile(path=path)]) for path in (OLD, NEW)]
    operator = OperatorMetadata(
        operator_id="op", parallelism=2, subtasks=[SubtaskState(subtask=n, tables=[tables[n]]) for n in (0, 1)]
    )
    path = await write_operator(storage, PATH, operator)
    metadata = CheckpointMetadata(job_id="job", epoch=7, finished_at_us=1, operators=[path])
    await write_metadata(storage, PATH, metadata)
    return Snapshot(PATH, metadata, (operator,))


async def test_a_snapshot_is_read_as_it_was_written() -> None:
    storage = memory_storage()
    assert not await is_complete(storage, PATH)
    snapshot = await written(storage)
    assert await is_complete(storage, PATH)
    assert await read_snapshot(storage, metadata_path(PATH)) == snapshot


async def test_a_snapshot_refers_to_its_metadata_and_to_files_of_older_epochs() -> None:
    snapshot = await written(memory_storage())
    assert refers(snapshot) == {f"{PATH}/metadata", f"{PATH}/operator-op/metadata", OLD, NEW}


async def test_only_staged_rows_need_commits() -> None:
    snapshot = await written(memory_storage())
    assert not snapshot.has_commits
    snapshot.operators[0].subtasks[1].commit = b""
    assert snapshot.has_commits


@pytest.mark.parametrize("path", [f"{PATH}/metadata", f"{PATH}/operator-op/metadata"])
async def test_a_file_that_is_missing_or_damaged_is_named(path: str) -> None:
    storage = memory_storage()
    await written(storage)
    for content in (b"\xff\xff", b""):
        await storage.put(path, content)
        with pytest.raises(CorruptSnapshot, match=path):
            await read_snapshot(storage, metadata_path(PATH))
    await storage.delete(path)
    with pytest.raises(CorruptSnapshot, match=f"{path} is missing"):
        await read_snapshot(storage, metadata_path(PATH))


async def test_a_file_of_a_table_that_is_missing_is_named() -> None:
    storage = memory_storage()
    snapshot = await written(storage)
    await storage.put(NEW, b"rows")
    with pytest.raises(CorruptSnapshot, match=f"{OLD} is missing"):
        await check_files(storage, snapshot)
    await storage.put(OLD, b"rows")
    await check_files(storage, snapshot)


def test_paths_of_savepoints_are_one_part_each() -> None:
    assert savepoint_path("before the change") == "savepoints/before the change"
    assert savepoint_path("a/../b") == "savepoints/a%2F..%2Fb"


def test_the_settings_come_before_the_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("state")
    plain = load_config(environment={})
    assert plain.section("checkpoints", CheckpointSettings).retained == 1
    assert open_checkpoints(plain) is None
    beside = open_checkpoints(plain, folder / "checkpoints")
    assert beside is not None and beside.url == (folder / "checkpoints").as_uri()
    given = open_checkpoints(load_config(environment={"PENSTOCK__CHECKPOINTS__URL": "memory://x"}), folder)
    assert given is not None and given.url == "memory://x"
