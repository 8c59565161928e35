"""A subtask: one chain of the program at one place of its parallelism, from its inputs to its outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, cast

import pyarrow as pa
import structlog

from penstock.common.crash_points import crash_point
from penstock.common.errors import InternalError, NotFound
from penstock.common.events import LogEvent
from penstock.common.program import ArrowKey, AsyncUdf, ConnectorSink, ConnectorSource, LookupJoin, Node, Stage
from penstock.connectors.base import Connector, LineParsers, OutputPort, Sink, Source, StagingSink, TableSpec
from penstock.connectors.lookups import LookupConnector, LookupSpec
from penstock.connectors.options import read_options
from penstock.worker.async_process import AsyncProcess
from penstock.worker.chain import Chain
from penstock.worker.channels import Inbox
from penstock.worker.functions import FunctionEngine, JobFunctions
from penstock.worker.job_checkpoints import JobCheckpoints
from penstock.worker.links import Links, OpenOperator
from penstock.worker.metrics import LatencyHistogram
from penstock.worker.network.network import Network
from penstock.worker.operators.async_udf import AsyncUdfStage
from penstock.worker.operators.base import ChainOperator, Planner
from penstock.worker.operators.lookup import open_lookup
from penstock.worker.operators.opening import open_operator
from penstock.worker.outlets import InTurn, Outlets
from penstock.worker.pace import Pace
from penstock.worker.partition_times import PartitionTimes
from penstock.worker.processor import Processor
from penstock.worker.reader import Reader
from penstock.worker.reports import Reporter
from penstock.worker.restoring import RestorePoint, Share
from penstock.worker.secrets import fill_secrets
from penstock.worker.signals import Barrier
from penstock.worker.snapshots import KeptTable, Snapshots
from penstock.worker.staging import Staging
from penstock.worker.steps import Step
from penstock.worker.turns import Turns
from penstock.worker.wiring import TaskId, Wiring
from penstock.worker.writer import Writer

_LARGER_BATCHES: Final = 4

log = structlog.get_logger(__name__)


class FragmentEngine(LineParsers, Planner, FunctionEngine, Protocol):
    """What a worker needs of its engine."""

    async def ended(self) -> Exception:
        """Waits until the engine is no more; returns why."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all subtasks of a worker share."""

    engine: FragmentEngine
    connectors: Mapping[str, Connector]
    environment: Mapping[str, str]
    pace: Pace
    output: Callable[[str, TaskId], OutputPort]
    """Where the preview rows of a table go."""
    open_operator: OpenOperator = open_operator
    storage_options: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None
    """The way to other workers, where there may be others."""


class Subtask:
    """One subtask, from `open` to `close`."""

    def __init__(
        self,
        wiring: Wiring,
        surroundings: Surroundings,
        checkpoints: JobCheckpoints | None = None,
        functions: JobFunctions | None = None,
    ) -> None:
        self.task = wiring.task
        self.metrics = wiring.metrics
        self._wiring = wiring
        self._surroundings = surroundings
        self._checkpoints = checkpoints
        self._functions = functions
        self._calls: AsyncProcess | None = None
        self._snapshots: Snapshots | None = None
        self._staging: Staging | None = None
        self._barriers: list[Barrier] = []  # before there was a reader to take them
        self._watermarks: Mapping[str, int] = {}
        self._links = Links(wiring, surroundings.engine, surroundings.open_operator, self._open_lookup)
        self._chain = Chain()
        self._source: Source | None = None
        self._sink: Sink | None = None
        self._reader: Reader | None = None
        self._stopping = False
        self.source_ended = False
        """Whether its source has no more rows."""

    def stop(self) -> None:
        """Ends the reading of a source; what is on its way arrives, and then the subtask ends."""
        self._stopping = True
        if self._reader is not None:
            self._reader.stop()

    def checkpoint(self, barrier: Barrier) -> None:
        """Puts a barrier behind the rows that a source has given; those of others come to them in their streams."""
        if self._reader is not None:
            self._reader.checkpoint(barrier)
        else:
            self._barriers.append(barrier)

    async def commit(self, epoch: int, data: bytes) -> None:
        """Has a sink commit what it has staged."""
        if self._staging is None:
            raise NotFound(f"the task {self.task} has nothing to commit")
        await self._staging.commit(epoch, data)

    async def open(self) -> None:
        """Plans and opens what the chain needs, and puts into it what the job goes on from."""
        restored = None if self._checkpoints is None else await self._checkpoints.restore_point()
        first, last = self._wiring.node.operators[0], self._wiring.node.operators[-1]
        if isinstance(first.kind, ConnectorSource):
            assert first.output is not None
            table = self._table(first.kind, first.output, first.kind.metadata)
            if restored is not None and restored.has(first.key):
                table = replace(table, restored=await restored.positions(first.key))
                self._watermarks = await restored.watermarks(first.key)
            self._source = self._connector(first.kind).open_source(table)
        if isinstance(first.kind, AsyncUdf):
            assert self._functions is not None and self._wiring.input is not None
            function = self._functions.get(first.kind.function)
            self._calls = await AsyncProcess.start(first.kind, function, self._wiring.input)
        self._chain = await self._links.open()
        self.metrics.state = self._chain
        tables = [] if self._checkpoints is None else await self._restore(restored)
        if isinstance(last.kind, ConnectorSink):  # late, since a sink that is open holds others off
            self._sink = self._connector(last.kind).open_sink(self._table(last.kind, last.kind.input, {}))
            self.metrics.latency = LatencyHistogram()
        if self._checkpoints is not None:
            await self._join(self._checkpoints, tables, restored)

    async def _restore(self, restored: RestorePoint | None) -> list[KeptTable]:
        """Puts into operators what the job goes on from; returns what they keep."""
        share = Share(self.task.subtask, self._wiring.node.parallelism, self._wiring.keys)
        tables: list[KeptTable] = []
        for key, operator in self._links.stateful:
            if restored is not None and restored.has(key):
                tables += await restored.restore(key, operator, share, self._surroundings.engine)
                self.metrics.watermark = restored.watermark(key, share)
            else:
                for name, table in operator.tables.items():
                    table.begin()
                    tables.append(KeptTable(key, name, table))
        await crash_point(Step.RESTORED)
        return tables

    async def _join(
        self, checkpoints: JobCheckpoints, tables: Sequence[KeptTable], restored: RestorePoint | None
    ) -> None:
        """Takes part in checkpoints from now on."""
        operators = self._wiring.node.operators
        last = operators[-1]
        stages = isinstance(last.kind, ConnectorSink) and self._stages_rows(last.kind)
        self._snapshots = Snapshots(
            self.task,
            self._wiring.node.parallelism,
            checkpoints.storage,
            checkpoints.reporter,
            tables,
            source=None if self._source is None else operators[0].key,
            staging=last.key if stages else None,
        )
        if stages:
            self._staging = Staging(self.task, cast("StagingSink", self._sink), self._snapshots, checkpoints.reporter)
            await self._staging.recover(() if restored is None else restored.commits(last.key))

    async def run(self) -> None:
        """Runs the opened chain to its end."""
        try:
            async with asyncio.TaskGroup() as stages:
                for name, stage in self._stages():
                    stages.create_task(stage, name=f"{self.task} {name}")
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def close(self) -> None:
        """Gives back what the chain holds; what fails in that is only logged, for all rows are settled."""
        held = [held for held in (self._source, self._calls, self._sink, *self._links.opened) if held is not None]
        for outcome in await asyncio.gather(*(one.close() for one in held), return_exceptions=True):
            if isinstance(outcome, Exception):
                log.warning(LogEvent.SUBTASK_CLOSE_FAILED, task=str(self.task), reason=str(outcome))

    def _stages(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        wiring, pace = self._wiring, self._pace
        outlet = times = None
        if self._source is not None:
            times = self._times(self._source)
            self._reader = self._open_reader(self._source, times)
            yield "reader", self._reader.run()
        if self._sink is not None:
            inbox = Inbox()
            outlet = InTurn([inbox.channel(pace.batch_rows)], self.metrics.backpressure)
            yield "writer", Writer(inbox, self._sink, self.metrics, pace, self._at_barrier()).run()
        outlets = Outlets(wiring.outlets, outlet, self.metrics)
        inbox = wiring.inbox
        if self._calls is not None:
            inbox = Inbox()
            yield "async udf", self._async_stage(self._calls).run(wiring.inbox, inbox.channel(pace.channel_rows))
        processor = Processor(inbox, self._chain, outlets, self.metrics, pace, times, self._snapshots)
        yield "processor", processor.run()
        if self._snapshots is not None:
            yield "snapshots", self._snapshots.run()
        if self._staging is not None:
            yield "commits", self._staging.run()

    @property
    def _pace(self) -> Pace:
        """That of all, but with larger batches where those cost less: Python functions begin anew with each, and the
        more rows are aggregated at once, the fewer partial results there are to send and to merge."""
        pace, node = self._surroundings.pace, self._wiring.node
        calls_functions = self._functions is not None and self._functions.are_called_by(node)
        if not calls_functions and not _aggregates(node):
            return pace
        return replace(pace, batch_rows=pace.batch_rows * _LARGER_BATCHES)

    def _async_stage(self, calls: AsyncProcess) -> AsyncUdfStage:
        first = self._wiring.node.operators[0]
        assert isinstance(first.kind, AsyncUdf) and first.output is not None
        return AsyncUdfStage(first.kind, first.output, calls, has_checkpoints=self._checkpoints is not None)

    def _at_barrier(self) -> Callable[[Barrier], Awaitable[None]] | None:
        """What a sink does when a barrier comes to it."""
        if self._snapshots is None:
            return None
        return self._flush_at_barrier if self._staging is None else self._staging.stage

    async def _flush_at_barrier(self, barrier: Barrier) -> None:
        assert self._sink is not None
        await self._sink.flush()

    def _stages_rows(self, kind: ConnectorSink) -> bool:
        sink = self._connector(kind).sink
        return sink is not None and sink.stages

    def _times(self, source: Source) -> PartitionTimes | None:
        """Where nobody observes event times, nobody keeps them."""
        if not self._chain.observes:
            return None
        times = PartitionTimes(source.partitions, self._wiring.alignment, self.task.subtask, source.partition_name)
        times.restore(self._watermarks)
        return times

    def _open_reader(self, source: Source, times: PartitionTimes | None) -> Reader:
        wiring, batch_rows = self._wiring, self._surroundings.pace.batch_rows
        turns = None if times is None else Turns(source.partitions, times, self._idle_seconds())
        into = wiring.inbox.channel(self._pace.batch_rows)
        ended = None if self._checkpoints is None else partial(self._end_source, self._checkpoints.reporter)
        reader = Reader(source, into, wiring.dead_letters, self.metrics, batch_rows, turns, ended)
        if times is not None:
            times.listen(reader.look_again)
        for barrier in self._barriers:
            reader.checkpoint(barrier)
        if self._stopping:
            reader.stop()
        return reader

    def _end_source(self, reporter: Reporter) -> None:
        self.source_ended = True
        reporter.task_ended(self.task)

    def _idle_seconds(self) -> float | None:
        kind = self._wiring.node.operators[0].kind
        return kind.idle_ms / 1000 if isinstance(kind, ConnectorSource) and kind.idle_ms else None

    def _open_lookup(self, join: LookupJoin, output: pa.Schema) -> ChainOperator:
        """A lookup join; its table opens nothing before the first question."""
        connector = self._connector(join)
        if not isinstance(connector, LookupConnector):
            raise InternalError(f"the connector {join.connector} of table {join.table} has no lookup tables")
        filled = fill_secrets(join.table, join.options, self._surroundings.environment)
        options = read_options(connector.name, connector.lookup.options, filled)
        table = connector.open_lookup(LookupSpec(join.table, filled, join.looked_up, len(join.keys)))
        return open_lookup(join, output, table, connector.lookup, options, self.metrics.lookup)

    def _connector(self, kind: ConnectorSource | ConnectorSink | LookupJoin) -> Connector:
        connector = self._surroundings.connectors.get(kind.connector)
        if connector is None:
            raise InternalError(f"this worker has no connector {kind.connector}, which table {kind.table} needs")
        return connector

    def _table(
        self, kind: ConnectorSource | ConnectorSink, schema: pa.Schema, metadata: Mapping[str, str]
    ) -> TableSpec:
        surroundings = self._surroundings
        return TableSpec(
            table=kind.table,
            options=fill_secrets(kind.table, kind.options, surroundings.environment),
            schema=schema,
            metadata=metadata,
            subtask=self.task.subtask,
            parallelism=self._wiring.node.parallelism,
            batch_rows=surroundings.pace.batch_rows,
            output=surroundings.output(kind.table, self.task),
            job="" if self._checkpoints is None else self._checkpoints.job,
            transactional=self._checkpoints is not None,
            lines=surroundings.engine,
        )


def _aggregates(node: Node) -> bool:
    """Whether it makes partial results of rows."""
    kinds = [operator.kind for operator in node.operators]
    return any(isinstance(kind, ArrowKey) and kind.query.stage is Stage.PARTIAL for kind in kinds)
