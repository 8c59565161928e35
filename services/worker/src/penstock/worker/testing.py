"""Deterministic sources and sinks, a reporter in memory, and a small way to build programs, for tests."""

from __future__ import annotations

import asyncio
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
from penstock.connectors.base import (
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
from penstock.spark import FragmentSpec
from penstock.worker.assignment import Assignment, Job
from penstock.worker.channels import Batches
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.reports import OutputRows
from penstock.worker.stages import Pace, PlannedFragment
from penstock.worker.subtask import FragmentEngine, Surroundings
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

    def __init__(self, batches: Iterable[SourceBatch], *, ends: bool = True) -> None:
        self._batches = iter(batches)
        self._ends = ends
        self.closed = False

    async def read(self) -> SourceBatch | None:
        await asyncio.sleep(0)
        batch = next(self._batches, None)
        if batch is None and not self._ends:
            await asyncio.get_running_loop().create_future()
        return batch

    async def close(self) -> None:
        self.closed = True


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
    """Passes rows on as they are, parted by their first column."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    async def run(self, *inputs: Sequence[pa.RecordBatch]) -> Batches:
        await asyncio.sleep(0)
        (batches,) = inputs
        together = pa.concat_batches(batches)
        partition = np.mod(together.column(0).to_numpy(), self._partitions)
        return tuple(together.filter(pa.array(partition == number)) for number in range(self._partitions))

    async def close(self) -> None: ...


class PassingEngine:
    """Plans any query as one that passes its rows on; `lose` ends it."""

    def __init__(self) -> None:
        self._ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def plan(self, spec: FragmentSpec) -> PlannedFragment:
        return PassingFragment(spec.partitions)

    def line_decoder(self, schema: pa.Schema, max_line_bytes: int) -> None:
        return None

    async def ended(self) -> Exception:
        return await asyncio.shield(self._ended)

    def lose(self, error: Exception) -> None:
        self._ended.set_result(error)


@dataclass
class MemoryReporter:
    """Keeps the reports."""

    started: list[TaskId] = field(default_factory=list)
    finished: list[TaskId] = field(default_factory=list)
    failed: list[tuple[TaskId, PenstockError]] = field(default_factory=list)
    nonfatal: list[tuple[TaskId, PenstockError]] = field(default_factory=list)
    output: list[OutputRows] = field(default_factory=list)
    ended: bool = False

    def task_started(self, task: TaskId) -> None:
        self.started.append(task)

    def task_finished(self, task: TaskId, metrics: SubtaskMetrics) -> None:
        self.finished.append(task)

    def task_failed(self, task: TaskId, error: PenstockError) -> None:
        self.failed.append((task, error))

    def nonfatal_error(self, task: TaskId, error: PenstockError) -> None:
        self.nonfatal.append((task, error))

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
) -> Surroundings:
    """A worker's surroundings with one connector."""
    port = output or NoOutput()
    return Surroundings(
        engine or PassingEngine(), {connector.name: connector}, environment or {}, pace, lambda _table, _task: port
    )


def source(table: str = "t", schema: pa.Schema = SCHEMA, options: Mapping[str, str] | None = None) -> Operator:
    return Operator(OperatorKey(table), f"source {table}", ConnectorSource("memory", table, options or {}, {}), schema)


def value(sql: str, output: pa.Schema = SCHEMA) -> Operator:
    return Operator(OperatorKey(sql), "value", ArrowValue(sql), output)


def sink(table: str = "out", schema: pa.Schema = SCHEMA, options: Mapping[str, str] | None = None) -> Operator:
    return Operator(OperatorKey(table), f"sink {table}", ConnectorSink("memory", table, options or {}, schema), None)


def node(key: str, *operators: Operator, parallelism: int = 1) -> Node:
    return Node(NodeKey(key), key, operators, parallelism)


def assignment(program: Program, tasks: Sequence[TaskId] | None = None) -> Assignment:
    """All of a program, or some of its subtasks."""
    everything = [TaskId(node.key, subtask) for node in program.nodes for subtask in range(node.parallelism)]
    job = Job(JobId.new(), PipelineId.new(), Generation(1))
    return Assignment(job, program, tuple(everything if tasks is None else tasks))
