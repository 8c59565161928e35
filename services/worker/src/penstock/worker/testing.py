"""Deterministic sources and sinks, a reporter in memory, and a small way to build programs, for tests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.common.errors import PenstockError
from penstock.common.ids import Generation, JobId, PipelineId
from penstock.common.program import (
    ArrowValue,
    ConnectorSink,
    ConnectorSource,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    Program,
)
from penstock.common.proto.checkpoint_pb2 import OperatorState
from penstock.connectors.base import (
    NONE_HELD,
    TIMESTAMP_COLUMN,
    TIMESTAMP_TYPE,
    Options,
    OutputPort,
    Role,
    Sink,
    SinkKind,
    Source,
    SourceBatch,
    SourceKind,
    TableSpec,
)
from penstock.spark import FragmentSpec, Observed, Udf
from penstock.worker.assignment import Assignment, Checkpoints, Job
from penstock.worker.batches import Batches
from penstock.worker.fragments import PlannedFragment
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.pace import Pace
from penstock.worker.reports import CheckpointStep, OutputRows
from penstock.worker.subtask import FragmentEngine, Surroundings
from penstock.worker.testing_operators import Operators
from penstock.worker.wiring import TaskId

SCHEMA = pa.schema([("n", pa.int64()), (TIMESTAMP_COLUMN, TIMESTAMP_TYPE)])
"""What the sources here produce."""

TEST_PACE = Pace(batch_rows=1000, channel_rows=2000, linger_seconds=0.0, flush_seconds=0.1)


def rows(numbers: Iterable[int]) -> pa.RecordBatch:
    """A batch of `SCHEMA`."""
    column = pa.array(numbers, pa.int64())
    return pa.record_batch([column, column.cast(TIMESTAMP_TYPE)], schema=SCHEMA)


class ListSource:
    """Gives what it was given, then ends, or waits for ever."""

    def __init__(self, batches: Iterable[SourceBatch], *, ends: bool = True, partitions: int = 1) -> None:
        self.partitions = partitions
        self._batches = iter(batches)
        self._ends = ends
        self.closed = False

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        await asyncio.sleep(0)
        batch = next(self._batches, None)
        if batch is None and not self._ends:
            await asyncio.get_running_loop().create_future()
        return batch

    def partition_name(self, partition: int) -> str:
        return str(partition)

    def positions(self) -> Mapping[str, bytes]:
        return {}

    async def close(self) -> None:
        self.closed = True


class PartitionedSource:
    """Gives rows of each of its partitions in turn; a partition whose last item is None never ends."""

    def __init__(self, *partitions: Sequence[Sequence[int] | None]) -> None:
        self.partitions = len(partitions)
        self.asked: list[frozenset[int]] = []
        """What was held at each read."""
        self._left = {partition: deque(batches) for partition, batches in enumerate(partitions)}
        self._given = -1

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        self.asked.append(held)
        await asyncio.sleep(0)
        turns = sorted(self._left, key=lambda partition: (partition <= self._given, partition))
        for partition in turns:
            batches = self._left[partition]
            if partition in held or (batches and batches[0] is None):
                continue
            self._given = partition
            found = batches.popleft() if batches else None
            ended = () if batches else (partition,)
            for one in ended:
                del self._left[one]
            return SourceBatch(rows(found or ()), partition=partition, ended=ended)
        if self._left:
            await asyncio.get_running_loop().create_future()
        return None

    def partition_name(self, partition: int) -> str:
        return str(partition)

    def positions(self) -> Mapping[str, bytes]:
        return {}

    async def close(self) -> None: ...


class CollectingSink:
    """Keeps what is written, with a mark (None) at each flush; `gate` can hold its writes up, `fails_at` ends them."""

    def __init__(self, *, gate: asyncio.Event | None = None, fails_at: int | None = None) -> None:
        self.written: list[pa.RecordBatch | None] = []
        self.closed = False
        self._gate = gate
        self._fails_at = fails_at

    @property
    def numbers(self) -> list[int]:
        """The rows so far."""
        return [number for batch in self.written if batch is not None for number in batch.column(0).to_pylist()]

    @property
    def visible(self) -> int:
        """How many rows have been flushed."""
        ends = [index for index, batch in enumerate(self.written) if batch is None]
        return sum(batch.num_rows for batch in self.written[: ends[-1]] if batch is not None) if ends else 0

    async def write(self, batch: pa.RecordBatch) -> None:
        if self._gate is not None:
            await self._gate.wait()
        if self._fails_at is not None and len(self.numbers) >= self._fails_at:
            raise OSError("the disk is full")
        self.written.append(batch)

    async def flush(self) -> None:
        self.written.append(None)

    async def close(self) -> None:
        self.closed = True


@dataclass
class MemoryConnector:
    """Opens what a test has put in, by table and subtask."""

    name: ClassVar[str] = "memory"
    description: ClassVar[str] = "For tests"
    source: ClassVar[SourceKind | None] = SourceKind(Options, {})
    sink: ClassVar[SinkKind | None] = SinkKind(Options)

    sources: Mapping[tuple[str, int], Source] = field(default_factory=dict)
    sinks: dict[tuple[str, int], CollectingSink] = field(default_factory=dict)
    make_sink: Callable[[], CollectingSink] = CollectingSink
    opened: list[TableSpec] = field(default_factory=list)

    def schema(self, options: Options) -> pa.Schema | None:
        return None

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        return None

    def open_source(self, spec: TableSpec) -> Source:
        self.opened.append(spec)
        return self.sources[spec.table, spec.subtask]

    def open_sink(self, spec: TableSpec) -> Sink:
        self.opened.append(spec)
        return self.sinks.setdefault((spec.table, spec.subtask), self.make_sink())


class PassingFragment:
    """Passes rows on as they are, parted by their first column, which is also their event time.

    Where it observes, the watermark is so far behind that, and late rows are dropped."""

    def __init__(self, partitions: int, delay: int = 0) -> None:
        self._partitions = partitions
        self._delay = delay
        self.runs: list[tuple[int | None, list[int]]] = []
        """The watermark before each run, and its rows."""

    async def run(self, *inputs: Sequence[pa.RecordBatch]) -> Batches:
        await asyncio.sleep(0)
        (batches,) = inputs
        together = pa.concat_batches(batches)
        partition = np.mod(together.column(0).to_numpy(), self._partitions)
        return tuple(together.filter(pa.array(partition == number)) for number in range(self._partitions))

    async def observe(self, batches: Sequence[pa.RecordBatch], watermark: int | None) -> Observed:
        together = pa.concat_batches(batches)
        numbers = together.column(0).to_pylist()
        self.runs.append((watermark, numbers))
        on_time = []
        for number in numbers:
            on_time.append(watermark is None or number > watermark)
            watermark = max(number - self._delay, number - self._delay if watermark is None else watermark)
        kept = await self.run([together.filter(pa.array(on_time))])
        return Observed(kept, watermark, on_time.count(False))

    async def close(self) -> None: ...


class PassingEngine:
    """Plans any query as one that passes its rows on; `lose` ends it."""

    def __init__(self, delay: int = 0) -> None:
        self._ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._delay = delay
        self.planned: list[PassingFragment] = []

    async def plan(self, spec: FragmentSpec) -> PlannedFragment:
        self.planned.append(PassingFragment(spec.partitions, self._delay))
        return self.planned[-1]

    def line_decoder(self, schema: pa.Schema, max_line_bytes: int) -> None:
        return None

    async def register(self, udf: Udf) -> None:
        raise AssertionError(f"no query here calls {udf.name}")

    async def ended(self) -> Exception:
        return await asyncio.shield(self._ended)

    def lose(self, error: Exception) -> None:
        self._ended.set_result(error)


@dataclass(frozen=True)
class CompletedReport:
    """A subtask's part of a checkpoint."""

    task: TaskId
    epoch: int
    watermark: int
    operators: tuple[OperatorState, ...]


@dataclass
class MemoryReporter:
    """Keeps the reports."""

    started: list[TaskId] = field(default_factory=list)
    finished: list[TaskId] = field(default_factory=list)
    failed: list[tuple[TaskId, PenstockError]] = field(default_factory=list)
    nonfatal: list[tuple[TaskId, PenstockError]] = field(default_factory=list)
    output: list[OutputRows] = field(default_factory=list)
    tasks_ended: list[TaskId] = field(default_factory=list)
    steps: list[tuple[TaskId, int, CheckpointStep]] = field(default_factory=list)
    completed: list[CompletedReport] = field(default_factory=list)
    checkpoints_failed: list[tuple[TaskId, int, PenstockError]] = field(default_factory=list)
    committed: list[tuple[TaskId, int]] = field(default_factory=list)
    ended: bool = False

    def task_started(self, task: TaskId) -> None:
        self.started.append(task)

    def task_finished(self, task: TaskId, metrics: SubtaskMetrics) -> None:
        self.finished.append(task)

    def task_failed(self, task: TaskId, error: PenstockError) -> None:
        self.failed.append((task, error))

    def nonfatal_error(self, task: TaskId, error: PenstockError) -> None:
        self.nonfatal.append((task, error))

    def task_ended(self, task: TaskId) -> None:
        self.tasks_ended.append(task)

    def checkpoint_event(self, task: TaskId, epoch: int, step: CheckpointStep, at: float) -> None:
        self.steps.append((task, epoch, step))

    def checkpoint_completed(
        self, task: TaskId, epoch: int, watermark: int, operators: Sequence[OperatorState]
    ) -> None:
        self.completed.append(CompletedReport(task, epoch, watermark, tuple(operators)))

    def checkpoint_failed(self, task: TaskId, epoch: int, error: PenstockError) -> None:
        self.checkpoints_failed.append((task, epoch, error))

    def task_committed(self, task: TaskId, epoch: int) -> None:
        self.committed.append((task, epoch))

    def worker_finished(self) -> None:
        self.ended = True

    async def send_output(self, rows: OutputRows) -> None:
        self.output.append(rows)

    async def delivered(self) -> None: ...


class NoOutput:
    """For programs without a preview."""

    async def send(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("there is no output")


def surroundings(
    connector: MemoryConnector,
    *,
    engine: FragmentEngine | None = None,
    pace: Pace = TEST_PACE,
    environment: Mapping[str, str] | None = None,
    output: OutputPort | None = None,
    operators: Operators | None = None,
) -> Surroundings:
    """A worker's surroundings with one connector."""
    port = output or NoOutput()
    return Surroundings(
        engine or PassingEngine(),
        {connector.name: connector},
        environment or {},
        pace,
        lambda _table, _task: port,
        (operators or Operators()).open,
    )


def source(
    table: str = "t", schema: pa.Schema = SCHEMA, options: Mapping[str, str] | None = None, idle_ms: int = 0
) -> Operator:
    kind = ConnectorSource("memory", table, options or {}, {}, idle_ms)
    return Operator(OperatorKey(table), f"source {table}", kind, schema)


def value(sql: str, output: pa.Schema = SCHEMA, *, observes: bool = False) -> Operator:
    return Operator(OperatorKey(sql), "value", ArrowValue(sql, observes), output)


def sink(table: str = "out", schema: pa.Schema = SCHEMA, options: Mapping[str, str] | None = None) -> Operator:
    return Operator(OperatorKey(table), f"sink {table}", ConnectorSink("memory", table, options or {}, schema), None)


def node(key: str, *operators: Operator, parallelism: int = 1) -> Node:
    return Node(NodeKey(key), key, operators, parallelism)


def assignment(
    program: Program,
    tasks: Sequence[TaskId] | None = None,
    *,
    job: Job | None = None,
    checkpoints: Checkpoints | None = None,
) -> Assignment:
    """All of a program, or some of its subtasks."""
    everything = [TaskId(node.key, subtask) for node in program.nodes for subtask in range(node.parallelism)]
    job = job or Job(JobId.new(), PipelineId.new(), Generation(1))
    return Assignment(job, program, tuple(everything if tasks is None else tasks), checkpoints)
