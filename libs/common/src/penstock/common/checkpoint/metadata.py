"""Reads and writes what makes a checkpoint or a savepoint one: a file for each operator, and at last one for all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from penstock.common.checkpoint.paths import CHECKPOINTS, SnapshotPath, metadata_path, operator_metadata_path
from penstock.common.errors import ObjectNotFound, RetryHint, StorageError
from penstock.common.program import OperatorKey
from penstock.common.proto.checkpoint_pb2 import CheckpointMetadata, OperatorMetadata
from penstock.common.storage import Storage


class CorruptSnapshot(StorageError):
    """A file of a checkpoint or a savepoint is missing, or is not what it should be."""

    retry = RetryHint.NEVER


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint or a savepoint, whole: it can be restored."""

    path: SnapshotPath
    metadata: CheckpointMetadata
    operators: tuple[OperatorMetadata, ...]

    @property
    def has_commits(self) -> bool:
        """Whether sinks have staged rows for it."""
        return any(subtask.HasField("commit") for operator in self.operators for subtask in operator.subtasks)


def refers(snapshot: Snapshot) -> frozenset[str]:
    """All files of a snapshot, its own metadata among them: while one of them is missing it cannot be restored."""
    return frozenset((metadata_path(snapshot.path), *snapshot.metadata.operators, *_table_files(snapshot)))


async def write_operator(storage: Storage, snapshot: SnapshotPath, operator: OperatorMetadata) -> str:
    """Write the metadata of one operator, and return its path."""
    path = operator_metadata_path(snapshot, OperatorKey(operator.operator_id))
    await storage.put(path, operator.SerializeToString())
    return path


async def write_metadata(storage: Storage, snapshot: SnapshotPath, metadata: CheckpointMetadata) -> None:
    """Write what is written last, once all that it names is there."""
    await storage.put(metadata_path(snapshot), metadata.SerializeToString())


async def is_complete(storage: Storage, snapshot: SnapshotPath) -> bool:
    """Whether a snapshot was written to its end."""
    return await storage.exists(metadata_path(snapshot))


async def read_snapshot(storage: Storage, path: str) -> Snapshot:
    """The snapshot whose metadata is at a path; raises CorruptSnapshot, which names the file that is at fault."""
    metadata = CheckpointMetadata()
    await _read(storage, path, metadata)
    if not (metadata.job_id and metadata.epoch and metadata.finished_at_us):
        raise _corrupt(storage, path, "is not the metadata of a checkpoint")
    operators = await asyncio.gather(*(_read_operator(storage, operator) for operator in metadata.operators))
    return Snapshot(SnapshotPath(path.removesuffix("/metadata")), metadata, tuple(operators))


async def check_files(storage: Storage, snapshot: Snapshot) -> None:
    """Raise CorruptSnapshot when a file of a snapshot's tables is not there."""
    wanted = set(_table_files(snapshot))
    if wanted:
        async for found in storage.list(CHECKPOINTS):
            wanted.discard(found.path)
    if wanted:
        raise _corrupt(storage, min(wanted), "is missing")


def _table_files(snapshot: Snapshot) -> Iterator[str]:
    for operator in snapshot.operators:
        for subtask in operator.subtasks:
            for table in subtask.tables:
                for file in table.files:
                    yield file.path


async def _read_operator(storage: Storage, path: str) -> OperatorMetadata:
    operator = OperatorMetadata()
    await _read(storage, path, operator)
    if not (operator.operator_id and operator.parallelism):
        raise _corrupt(storage, path, "is not the metadata of an operator")
    return operator


async def _read(storage: Storage, path: str, into: CheckpointMetadata | OperatorMetadata) -> None:
    try:
        into.ParseFromString(await storage.get(path))
    except ObjectNotFound:
        raise _corrupt(storage, path, "is missing") from None
    except DecodeError:
        raise _corrupt(storage, path, "cannot be read") from None


def _corrupt(storage: Storage, path: str, what: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"the checkpoint's file {storage.url}/{path} {what}")
