"""A subtask: one chain of the program at one place of its parallelism, from its inputs to its outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

import pyarrow as pa
import structlog

from penstock.common.errors import InternalError
from penstock.common.events import LogEvent
from penstock.common.program import INPUT, ArrowValue, ConnectorSink, ConnectorSource
from penstock.connectors.base import Connector, LineParsers, OutputPort, Sink, Source, TableSpec
from penstock.spark import FragmentSpec
from penstock.worker.channels import Inbox
from penstock.worker.metrics import LatencyHistogram
from penstock.worker.outlets import InTurn
from penstock.worker.secrets import fill_secrets
from penstock.worker.stages import Pace, PlannedFragment, Processor, Reader, Writer
from penstock.worker.wiring import TaskId, Wiring

log = structlog.get_logger(__name__)


class FragmentEngine(LineParsers, Protocol):
    """What a worker needs of its engine."""

    async def plan(self, spec: FragmentSpec) -> PlannedFragment:
        """Plans a fragment."""
        ...

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


class Subtask:
    """One subtask, from `open` to `close`."""

    def __init__(self, wiring: Wiring, surroundings: Surroundings) -> None:
        self.task = wiring.task
        self.metrics = wiring.metrics
        self._wiring = wiring
        self._surroundings = surroundings
        self._fragments: list[PlannedFragment] = []
        self._source: Source | None = None
        self._sink: Sink | None = None
        self._reader: Reader | None = None
        self._stopping = False

    def stop(self) -> None:
        """Ends the reading of a source; what is on its way arrives, and then the subtask ends."""
        self._stopping = True
        if self._reader is not None:
            self._reader.stop()

    async def open(self) -> None:
        """Plans and opens what the chain needs."""
        for operator in self._wiring.node.operators:
            match kind := operator.kind:
                case ConnectorSource():
                    assert operator.output is not None
                    table = self._table(kind, operator.output, kind.metadata)
                    self._source = self._connector(kind).open_source(table)
                case ConnectorSink():
                    self._sink = self._connector(kind).open_sink(self._table(kind, kind.input, {}))
                    self.metrics.latency = LatencyHistogram()
                case ArrowValue():
                    pass
                case _:
                    assert_never(kind)
        for spec in self._fragment_specs():
            self._fragments.append(await self._surroundings.engine.plan(spec))

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
        held = [held for held in (self._source, self._sink, *self._fragments) if held is not None]
        for outcome in await asyncio.gather(*(one.close() for one in held), return_exceptions=True):
            if isinstance(outcome, Exception):
                log.warning(LogEvent.SUBTASK_CLOSE_FAILED, task=str(self.task), reason=str(outcome))

    def _stages(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        wiring, pace = self._wiring, self._surroundings.pace
        outlet = None
        if self._source is not None:
            into = wiring.inbox.channel(pace.batch_rows)
            self._reader = Reader(self._source, into, wiring.dead_letters, self.metrics, pace.batch_rows)
            if self._stopping:
                self._reader.stop()
            yield "reader", self._reader.run()
        if self._sink is not None:
            inbox = Inbox()
            outlet = InTurn([inbox.channel(pace.batch_rows)], self.metrics.backpressure)
            yield "writer", Writer(inbox, self._sink, self.metrics, pace).run()
        yield "processor", Processor(wiring.inbox, self._fragments, wiring.outlets, outlet, self.metrics, pace).run()

    def _fragment_specs(self) -> Iterator[FragmentSpec]:
        partitioning = self._wiring.partitioning
        last = None if partitioning is None else self._wiring.node.operators[-1]
        if last is not None and not isinstance(last.kind, ArrowValue):
            raise InternalError(f"the chain {self.task.node} shuffles by keys without a query that parts its rows")
        schema = self._wiring.input
        for operator in self._wiring.node.operators:
            if isinstance(operator.kind, ArrowValue):
                if schema is None:
                    raise InternalError(f"the operator {operator.key} has no input")
                by = partitioning if operator is last else None
                keys, partitions = ((), 1) if by is None else (by.keys, by.partitions)
                yield FragmentSpec(operator.kind.sql, {INPUT: schema}, operator.output, keys, partitions)
            schema = operator.output

    def _connector(self, kind: ConnectorSource | ConnectorSink) -> Connector:
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
            lines=surroundings.engine,
        )
