"""A subtask's part of each checkpoint: what it keeps is frozen at the barrier, and written while the stream goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from penstock.common.checkpoint.paths import Epoch, checkpoint_path, table_path
from penstock.common.crash_points import crash_point
from penstock.common.errors import PenstockError
from penstock.common.events import LogEvent
from penstock.common.program import OperatorKey
from penstock.common.proto.checkpoint_pb2 import OperatorState, StateFile, TableState
from penstock.common.storage import Storage
from penstock.worker import state_files
from penstock.worker.reports import CheckpointStep, Reporter
from penstock.worker.signals import Barrier
from penstock.worker.state.tables import (
    ExpiringTimeKey,
    Frozen,
    GlobalKeyed,
    StateTable,
    TableKind,
)
from penstock.worker.steps import Step
from penstock.worker.wiring import TaskId

POSITIONS: Final = "positions"
WATERMARKS: Final = "watermarks"
_MOST_FILES: Final = 8

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class KeptTable:
    """A table and the files that hold it, the oldest first."""

    operator: OperatorKey
    name: str
    table: StateTable
    files: list[StateFile] = field(default_factory=list)
    expired_before: int | None = None

    @property
    def time_column(self) -> str | None:
        return self.table.column if isinstance(self.table, ExpiringTimeKey) else None

    def to_proto(self) -> TableState:
        return TableState(name=self.name, kind=self.table.kind.value, files=self.files)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    barrier: Barrier
    watermark: int
    frozen: tuple[tuple[KeptTable, Frozen], ...]
    committed_by: asyncio.Future[bytes] | None


class Snapshots:
    """The checkpoints of one subtask, one at a time."""

    def __init__(
        self,
        task: TaskId,
        parallelism: int,
        storage: Storage,
        reporter: Reporter,
        tables: Sequence[KeptTable],
        *,
        source: OperatorKey | None = None,
        staging: OperatorKey | None = None,
    ) -> None:
        self._task = task
        self._parallelism = parallelism
        self._storage = storage
        self._reporter = reporter
        self._positions: Mapping[str, bytes] = {}
        self._watermarks: Mapping[str, bytes] = {}
        own = () if source is None else (
            KeptTable(source, POSITIONS, GlobalKeyed(lambda: self._positions)),
            KeptTable(source, WATERMARKS, GlobalKeyed(lambda: self._watermarks)),
        )  # fmt: skip
        self._tables = (*tables, *own)
        self._staging = staging
        self._staged: dict[int, asyncio.Future[bytes]] = {}
        self._queue: asyncio.Queue[_Snapshot] = asyncio.Queue()

    def note_source(self, positions: Mapping[str, bytes], watermarks: Mapping[str, int]) -> None:
        """How far the source was at the barrier that follows."""
        self._positions = positions
        self._watermarks = {name: at.to_bytes(8, "little", signed=True) for name, at in watermarks.items()}

    def freeze(self, barrier: Barrier, watermark: int, aligning_since: float | None) -> None:
        """All rows before the barrier have been worked on: what is kept now is the checkpoint's."""
        started_at = time.time()
        frozen = tuple((kept, kept.table.freeze()) for kept in self._tables)
        committed_by = None if self._staging is None else self._commit_data(barrier.epoch)
        self._queue.put_nowait(_Snapshot(barrier, watermark, frozen, committed_by))
        for step, at in (
            (CheckpointStep.ALIGNMENT_STARTED, aligning_since or started_at),
            (CheckpointStep.STARTED, started_at),
            (CheckpointStep.FROZEN, time.time()),
        ):
            self._reporter.checkpoint_event(self._task, barrier.epoch, step, at)

    def staged(self, epoch: int, data: bytes) -> None:
        """The sink has staged its rows."""
        self._commit_data(epoch).set_result(data)

    async def run(self) -> None:
        """Writes what was frozen until the last checkpoint is complete."""
        while True:
            snapshot = await self._queue.get()
            await crash_point(Step.FROZEN)
            try:
                await self._complete(snapshot)
            except PenstockError as error:
                log.warning(LogEvent.CHECKPOINT_FAILED, epoch=snapshot.barrier.epoch, reason=str(error))
                if snapshot.barrier.last:
                    raise
                for kept, frozen in snapshot.frozen:
                    kept.table.put_back(frozen)
                self._reporter.checkpoint_failed(self._task, snapshot.barrier.epoch, error)
            else:
                await crash_point(Step.COMPLETED_REPORTED)
                if snapshot.barrier.last:
                    return
                await self._compact(snapshot.barrier.epoch)

    async def _complete(self, snapshot: _Snapshot) -> None:
        written = [await self._write(kept, frozen, snapshot.barrier.epoch) for kept, frozen in snapshot.frozen]
        commit = None if snapshot.committed_by is None else await snapshot.committed_by
        self._staged.pop(snapshot.barrier.epoch, None)
        for (kept, frozen), file in zip(snapshot.frozen, written, strict=True):
            _take_in(kept, frozen, file)
        sizes = {kept.operator: 0 for kept in self._tables}
        for (kept, _), file in zip(snapshot.frozen, written, strict=True):
            sizes[kept.operator] += 0 if file is None else file.bytes
        if self._staging is not None:
            sizes.setdefault(self._staging, 0)
        states = [
            OperatorState(
                operator_id=operator,
                tables=[kept.to_proto() for kept in self._tables if kept.operator == operator],
                commit=commit if operator == self._staging else None,
                written_bytes=size,
            )
            for operator, size in sizes.items()
        ]
        await crash_point(Step.BEFORE_COMPLETED_REPORT)
        self._reporter.checkpoint_completed(self._task, snapshot.barrier.epoch, snapshot.watermark, states)

    async def _write(self, kept: KeptTable, frozen: Frozen, epoch: int) -> StateFile | None:
        path = table_path(checkpoint_path(Epoch(epoch)), kept.operator, kept.name, self._task.subtask)
        file = await state_files.write(self._storage, path, state_files.parts_of(frozen), kept.time_column)
        if file is None:
            return None
        file.subtask, file.parallelism = self._task.subtask, self._parallelism
        await crash_point(Step.FILE_WRITTEN)
        return file

    async def _compact(self, epoch: int) -> None:
        """Makes one file of several where there are many; the next checkpoint has it instead of them."""
        for kept in self._tables:
            begin = state_files.compactable(kept.files, _MOST_FILES)
            if begin is None:
                continue
            try:
                kept.files[begin:] = await self._compacted(kept, begin, epoch)
            except PenstockError as error:
                log.warning(LogEvent.COMPACTION_FAILED, table=kept.name, reason=str(error))
            await crash_point(Step.COMPACTED)

    async def _compacted(self, kept: KeptTable, begin: int, epoch: int) -> list[StateFile]:
        if kept.table.kind is TableKind.KEY_VALUE:
            parts = state_files.latest(self._storage, kept.files[begin:], tombstones=begin > 0)
        else:
            assert kept.expired_before is not None and kept.time_column is not None
            parts = state_files.unexpired(self._storage, kept.files[begin:], kept.time_column, kept.expired_before)
        path = table_path(checkpoint_path(Epoch(epoch)), kept.operator, kept.name, self._task.subtask, compacted=True)
        file = await state_files.write(self._storage, path, parts, kept.time_column)
        if file is None:
            return []
        file.subtask, file.parallelism, file.compacted = self._task.subtask, self._parallelism, True
        return [file]

    def _commit_data(self, epoch: int) -> asyncio.Future[bytes]:
        return self._staged.setdefault(epoch, asyncio.get_running_loop().create_future())


def _take_in(kept: KeptTable, frozen: Frozen, file: StateFile | None) -> None:
    """The files of a table after a checkpoint."""
    if frozen.is_whole:
        kept.files = []
    if (before := frozen.expired_before) is not None:
        kept.expired_before = before
        kept.files = [old for old in kept.files if old.last_time_us >= before]
    if file is not None:
        kept.files.append(file)
