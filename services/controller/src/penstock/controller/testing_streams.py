"""For tests: a stream of numbers that fake workers read, save and commit, so that it is known what has arrived."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.common.checkpoint.metadata import read_snapshot
from penstock.common.checkpoint.paths import Epoch, checkpoint_path, table_path
from penstock.common.errors import FencedError, NotFound, PenstockError
from penstock.common.program import NodeKey, OperatorKey
from penstock.common.proto import controller_pb2, worker_pb2
from penstock.common.proto.checkpoint_pb2 import OperatorState, StateFile, TableKind, TableState
from penstock.common.proto.error_pb2 import ErrorDetail
from penstock.common.rpc import calling
from penstock.common.storage import Storage, open_storage
from penstock.controller.records import TaskId

if TYPE_CHECKING:
    from penstock.controller.testing import FakeWorker

SOURCE, SINK = OperatorKey("op_in"), OperatorKey("op_out")
Range: TypeAlias = tuple[int, int, int]
"""A partition, and where its rows begin and end."""

_RETRY_SECONDS = 0.05


@dataclass(slots=True)
class FakeStream:
    """What is read, staged and seen; it outlives workers. A partition has `length` rows, or no end."""

    partitions: int = 4
    pause_seconds: float = 0.002
    length: int | None = None
    refused: set[int] = field(default_factory=set)
    """Epochs that tasks cannot write, each once."""
    staged: dict[str, tuple[Range, ...]] = field(default_factory=dict)
    seen: dict[str, tuple[Range, ...]] = field(default_factory=dict)
    restored: list[str] = field(default_factory=list)
    """What each generation began with, once for each of its workers."""

    def commit(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.seen:
                self.seen[name] = self.staged.pop(name)

    def rows_seen(self) -> int:
        return sum(end - start for ranges in self.seen.values() for _, start, end in ranges)

    def check(self, *, complete: bool = False) -> None:
        """Each row up to some point has been seen once."""
        ranges = sorted(each for ranges in self.seen.values() for each in ranges)
        for partition in range(self.partitions):
            at = 0
            for _, start, end in (each for each in ranges if each[0] == partition):
                assert start == at, f"rows {at} to {start} of partition {partition} in {ranges}"
                at = end
            assert not complete or at == self.length, f"partition {partition} was seen up to {at}"


class _Slice:
    """A source's subtask and the sink's that it feeds."""

    def __init__(self, number: int, positions: dict[int, int]) -> None:
        self.source = TaskId(NodeKey("in"), number)
        self.sink = TaskId(NodeKey("out"), number)
        self.positions = positions
        self.files: list[StateFile] = []
        self.unstaged = dict(positions)
        self.uncommitted: list[str] = []


class FakeTasks:
    """The tasks of one worker: reads numbers, and takes part in checkpoints as a worker does."""

    def __init__(self, worker: FakeWorker, stream: FakeStream, execution: worker_pb2.StartExecutionRequest) -> None:
        self._worker = worker
        self._stream = stream
        self._execution = execution
        self._storage: Storage = open_storage(execution.checkpoints.url)
        self._slices: list[_Slice] = []
        self._reading = True
        self._last_epoch = 0
        self._last_of_all = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended: set[TaskId] = set()
        self.finished: set[TaskId] = set()

    async def start(self) -> None:
        """Restore, commit again, and read."""
        positions = await self._restore()
        parallelism = len({placed.task.subtask for placed in self._execution.tasks})
        for number in sorted({task.subtask for task in self._worker.tasks}):
            own = {
                each: positions.get(each, 0) for each in range(self._stream.partitions) if each % parallelism == number
            }
            self._slices.append(_Slice(number, own))
        self.spawn(self._read())

    async def _restore(self) -> dict[int, int]:
        wanted = self._execution.checkpoints
        self._stream.restored.append(wanted.restore)
        if not wanted.restore:
            self._stream.staged.clear()
            return {}
        storage = open_storage(wanted.restore_url) if wanted.restore_url else self._storage
        snapshot = await read_snapshot(storage, wanted.restore)
        positions: dict[int, int] = {}
        names: list[str] = []
        for operator in snapshot.operators:
            for subtask in operator.subtasks:
                if subtask.HasField("commit"):
                    names += json.loads(subtask.commit)
                for table in subtask.tables:
                    contents = [json.loads(await storage.get(file.path)) for file in table.files]
                    positions.update({int(partition): at for partition, at in contents[-1].items()})
        if not wanted.restore_url:
            self._stream.commit(names)
        return positions

    async def _read(self) -> None:
        while self._reading:
            for each in self._slices:
                for partition, at in each.positions.items():
                    if self._stream.length is None or at < self._stream.length:
                        each.positions[partition] = at + 1
                if self._has_ended(each):
                    self._end(each)
            await asyncio.sleep(self._stream.pause_seconds)

    def _has_ended(self, each: _Slice) -> bool:
        length = self._stream.length
        return length is not None and all(at >= length for at in each.positions.values())

    def _end(self, each: _Slice) -> None:
        if each.source not in self.ended:
            self.ended.add(each.source)
            self.spawn(self.report_ended(each.source))

    def end_sources(self) -> None:
        """As a graceful stop asks for."""
        self._reading = False
        for each in self._slices:
            self._end(each)

    def report_all_ended(self) -> None:
        for task in self.ended:
            self.spawn(self.report_ended(task))

    async def report_ended(self, task: TaskId) -> None:
        request = controller_pb2.TaskEndedRequest(worker_id=self._worker.id, job=self._worker.owner, task=_task(task))
        await self._tell(lambda: self._worker.stub.TaskEnded(request))

    # Checkpoints

    def checkpoint(self, request: worker_pb2.CheckpointRequest) -> None:
        if request.epoch <= self._last_epoch:
            return
        self._last_epoch = request.epoch
        if request.then_stop:
            self._reading = False
            self._last_of_all = request.epoch
        refused = request.epoch in self._stream.refused
        self._stream.refused.discard(request.epoch)
        for each in self._slices:
            self.spawn(self._save(each, Epoch(request.epoch), dict(each.positions), refused, request.then_stop))

    async def _save(
        self, each: _Slice, epoch: Epoch, positions: dict[int, int], refused: bool, then_stop: bool
    ) -> None:
        """The barrier is where `positions` are; rows up to there are staged, later ones are of the next epoch."""
        staged = self._stage(each, epoch, positions)
        await self._report_steps(each, epoch)
        await self._write(each, epoch, positions)
        table = TableState(name="offsets", kind=TableKind.TABLE_KIND_GLOBAL_KEYED, files=each.files)
        state = OperatorState(operator_id=SOURCE, tables=[table], written_bytes=each.files[-1].bytes)
        if refused:
            await self._refuse(each.source, epoch)
        else:
            await self._complete(each.source, epoch, state)
        await self._complete(each.sink, epoch, OperatorState(operator_id=SINK, commit=staged))
        if then_stop and not refused:
            await self._finish([each.source])

    def _stage(self, each: _Slice, epoch: Epoch, positions: dict[int, int]) -> bytes:
        """What is committed with an epoch: its rows, and those of earlier epochs that came to nothing."""
        name = f"{epoch}-{each.sink}-{self._worker.id}"
        self._stream.staged[name] = tuple(
            (p, each.unstaged[p], at) for p, at in positions.items() if at > each.unstaged[p]
        )
        each.unstaged = dict(positions)
        each.uncommitted.append(name)
        return json.dumps(each.uncommitted).encode()

    async def _write(self, each: _Slice, epoch: Epoch, positions: dict[int, int]) -> None:
        """A file, beside up to two older ones that are still referred to."""
        path = table_path(checkpoint_path(epoch), SOURCE, "offsets", each.source.subtask)
        content = json.dumps(positions).encode()
        await self._storage.put(path, content)
        each.files = [*each.files[-2:], StateFile(path=path, rows=len(positions), bytes=len(content))]

    async def _report_steps(self, each: _Slice, epoch: Epoch) -> None:
        for task in (each.source, each.sink):
            events = [
                controller_pb2.CheckpointEvent(task=_task(task), epoch=epoch, step=step, at_us=_now_us())
                for step in (
                    controller_pb2.CHECKPOINT_STEP_ALIGNMENT_STARTED,
                    controller_pb2.CHECKPOINT_STEP_STARTED,
                    controller_pb2.CHECKPOINT_STEP_FROZEN,
                )
            ]
            request = controller_pb2.TaskCheckpointEventRequest(
                worker_id=self._worker.id, job=self._worker.owner, events=events
            )
            await self._tell(partial(self._worker.stub.TaskCheckpointEvent, request))

    async def _complete(self, task: TaskId, epoch: Epoch, state: OperatorState) -> None:
        request = controller_pb2.TaskCheckpointCompletedRequest(
            worker_id=self._worker.id,
            job=self._worker.owner,
            task=_task(task),
            epoch=epoch,
            operators=[state],
            at_us=_now_us(),
        )
        await self._tell(lambda: self._worker.stub.TaskCheckpointCompleted(request))

    async def _refuse(self, task: TaskId, epoch: Epoch) -> None:
        error = ErrorDetail(kind="StorageError", message="the disk is full", domain="external", retry="backoff")
        request = controller_pb2.TaskCheckpointFailedRequest(
            worker_id=self._worker.id, job=self._worker.owner, task=_task(task), epoch=epoch, error=error
        )
        await self._tell(lambda: self._worker.stub.TaskCheckpointFailed(request))

    def commit(self, request: worker_pb2.CommitRequest) -> None:
        self.spawn(self._commit(request))

    async def _commit(self, request: worker_pb2.CommitRequest) -> None:
        for commit in request.commits:
            names = json.loads(commit.data)
            self._stream.commit(names)
            for each in self._slices:
                each.uncommitted = [name for name in each.uncommitted if name not in names]
            committed = controller_pb2.TaskCommittedRequest(
                worker_id=self._worker.id, job=self._worker.owner, task=commit.task, epoch=request.epoch
            )
            await self._tell(partial(self._worker.stub.TaskCommitted, committed))
        if request.epoch == self._last_of_all:
            await self._finish([TaskId(NodeKey(c.task.node_id), c.task.subtask) for c in request.commits])

    async def _finish(self, tasks: list[TaskId]) -> None:
        self.finished.update(tasks)
        await self._tell(lambda: self._worker.report_finished(tasks))
        if self.finished == set(self._worker.tasks):
            await self._tell(self._worker.end_well)

    async def _tell(self, call: Callable[[], Awaitable[object]]) -> None:
        """Again and again while the controller is away."""
        while True:
            try:
                async with calling(self._worker.settings):
                    await call()
                return
            except (FencedError, NotFound):
                return
            except PenstockError:
                await asyncio.sleep(_RETRY_SECONDS)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self._reading = False
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait({task})


def _task(task: TaskId) -> controller_pb2.Task:
    return controller_pb2.Task(node_id=task.node, subtask=task.subtask)


def _now_us() -> int:
    return time.time_ns() // 1000
