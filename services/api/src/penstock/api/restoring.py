"""What a program would make of a savepoint, from the savepoint's metadata alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.api.checkpoint_store import ReadySavepoint
from penstock.api.context import Context
from penstock.api.schemas import OperatorState, RestoredState
from penstock.common.checkpoint.matching import match_state
from penstock.common.checkpoint.metadata import check_files, read_snapshot
from penstock.common.checkpoint.paths import metadata_path
from penstock.common.errors import NotFound, StorageError
from penstock.common.ids import JobId
from penstock.common.program import OperatorKey, Program
from penstock.common.program_proto import program_from_proto
from penstock.common.proto.checkpoint_pb2 import OperatorMetadata
from penstock.common.proto.program_pb2 import Program as ProgramMessage


async def restored_state(context: Context, savepoint: ReadySavepoint, program: Program) -> RestoredState:
    """Compare a savepoint with a program; raises CorruptSnapshot when one of its files is not there."""
    if context.storage is None:
        hint = "set checkpoints.url for the api to what it is for the controller"
        raise StorageError("the api does not know where savepoints are", hint=hint)
    folder = context.storage.child(savepoint.job_id)
    snapshot = await read_snapshot(folder, metadata_path(savepoint.path))
    await check_files(folder, snapshot)
    before = await _descriptions_before(context, savepoint.job_id)
    return derive_restored(snapshot.operators, program, before)


def derive_restored(
    saved: Iterable[OperatorMetadata], program: Program, before: Mapping[OperatorKey, str]
) -> RestoredState:
    """What becomes of each operator's state; `before` describes the operators that the state is of."""
    saved = tuple(saved)
    match = match_state(saved, program)
    sizes = {OperatorKey(operator.operator_id): _count_bytes(operator) for operator in saved}
    described = {**before, **_descriptions(program)}

    def told(keys: Iterable[OperatorKey]) -> list[OperatorState]:
        return [OperatorState(operator=key, description=described.get(key), bytes=sizes.get(key, 0)) for key in keys]

    return RestoredState(
        kept=told(match.kept),
        dropped=told(match.dropped),
        new=told(match.new),
        incompatible=told(match.incompatible),
    )


async def _descriptions_before(context: Context, job: JobId) -> Mapping[OperatorKey, str]:
    try:
        program = await context.store.program_of_job(job)
    except NotFound:
        return {}
    return _descriptions(program_from_proto(ProgramMessage.FromString(program)))


def _descriptions(program: Program) -> Mapping[OperatorKey, str]:
    return {operator.key: operator.description for node in program.nodes for operator in node.operators}


def _count_bytes(operator: OperatorMetadata) -> int:
    files = {file.path: file.bytes for subtask in operator.subtasks for table in subtask.tables for file in table.files}
    return sum(files.values())
