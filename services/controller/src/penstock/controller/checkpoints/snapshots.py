"""What is written of a checkpoint that all tasks have completed, and what is read of one again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.common.checkpoint.matching import derive_fingerprint
from penstock.common.checkpoint.metadata import Snapshot, write_metadata, write_operator
from penstock.common.checkpoint.paths import SnapshotPath, checkpoint_path
from penstock.common.crash_points import crash_point
from penstock.common.ids import Epoch
from penstock.common.program import NodeKey, OperatorKey, Program
from penstock.common.proto.checkpoint_pb2 import CheckpointMetadata, OperatorMetadata, SubtaskState
from penstock.common.storage import Storage
from penstock.controller.checkpoints.messages import Commits, Part, StagedCommit
from penstock.controller.checkpoints.steps import Step
from penstock.controller.records import TaskId, TaskOwner


@dataclass(frozen=True, slots=True)
class Completed:
    """An epoch of which every task has written its part."""

    owner: TaskOwner
    epoch: Epoch
    program: Program
    parts: Mapping[TaskId, Part]
    ended: bool
    finished_at_us: int


def derive_operators(program: Program, parts: Mapping[TaskId, Part]) -> Iterator[OperatorMetadata]:
    """The metadata of each operator that has state, in the program's order."""
    for node in program.nodes:
        for operator in node.operators:
            subtasks = [
                SubtaskState(subtask=task.subtask, watermark_us=part.watermark_us, tables=state.tables)
                if not state.HasField("commit")
                else SubtaskState(
                    subtask=task.subtask, watermark_us=part.watermark_us, tables=state.tables, commit=state.commit
                )
                for task, part in sorted(parts.items(), key=lambda item: item[0])
                if task.node == node.key
                for state in part.operators
                if state.operator_id == operator.key
            ]
            if subtasks:
                yield OperatorMetadata(
                    operator_id=operator.key,
                    node_id=node.key,
                    parallelism=node.parallelism,
                    subtasks=subtasks,
                    fingerprint=derive_fingerprint(operator),
                )


def derive_staged(snapshot: Snapshot) -> Commits:
    """The commits that a snapshot has, by the tasks that staged them."""
    commits: dict[TaskId, tuple[StagedCommit, ...]] = {}
    for operator in snapshot.operators:
        for subtask in operator.subtasks:
            if subtask.HasField("commit"):
                task = TaskId(NodeKey(operator.node_id), subtask.subtask)
                staged = StagedCommit(OperatorKey(operator.operator_id), subtask.commit)
                commits[task] = (*commits.get(task, ()), staged)
    return commits


async def write_checkpoint(storage: Storage, completed: Completed) -> Snapshot:
    """Write the metadata of each operator, and then that of the checkpoint."""
    path = checkpoint_path(completed.epoch)
    operators = tuple(derive_operators(completed.program, completed.parts))
    paths = await asyncio.gather(*(_write_operator(storage, path, operator) for operator in operators))
    metadata = CheckpointMetadata(
        job_id=completed.owner.job_id,
        epoch=completed.epoch,
        generation=completed.owner.generation,
        finished_at_us=completed.finished_at_us,
        operators=paths,
        ended=completed.ended,
    )
    await crash_point(Step.BEFORE_METADATA)
    await write_metadata(storage, path, metadata)
    await crash_point(Step.AFTER_METADATA)
    return Snapshot(path, metadata, operators)


async def _write_operator(storage: Storage, path: SnapshotPath, operator: OperatorMetadata) -> str:
    await crash_point(Step.BEFORE_OPERATOR)
    written = await write_operator(storage, path, operator)
    await crash_point(Step.AFTER_OPERATOR)
    return written


async def copy_snapshot(storage: Storage, snapshot: Snapshot, path: SnapshotPath) -> Snapshot:
    """Write the metadata of a snapshot once more, elsewhere in the same folder; it refers to the same files."""
    paths = []
    for operator in snapshot.operators:
        paths.append(await write_operator(storage, path, operator))
        await crash_point(Step.AFTER_SAVEPOINT_OPERATOR)
    metadata = CheckpointMetadata()
    metadata.CopyFrom(snapshot.metadata)
    metadata.ClearField("operators")
    metadata.operators.extend(paths)
    await write_metadata(storage, path, metadata)
    await crash_point(Step.AFTER_SAVEPOINT_METADATA)
    return Snapshot(path, metadata, snapshot.operators)
