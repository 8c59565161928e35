"""A fragment: one SQL query, planned once and run on Arrow batches again and again."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

import pyarrow as pa

from penstock.common.errors import PenstockError
from penstock.spark import conversion, failures
from penstock.spark.aggregation import AggregationStage
from penstock.spark.crossing import Crossing
from penstock.spark.errors import MEMORY_HINT, EngineMemory, FragmentClosed, FragmentRefused
from penstock.spark.wire import Frame, Kind, Sendable, Wire, header, json_frame

MAX_INPUTS: Final = 8

Batches: TypeAlias = "pa.RecordBatch | Sequence[pa.RecordBatch]"

# What the JVM gives of each partition.
_Chunks: TypeAlias = "Sequence[Sequence[pa.RecordBatch]]"
# That, and what a run came to, a batch per partition; each with the frame that ended the run.
_Received: TypeAlias = "tuple[_Chunks, Frame]"
_Answer: TypeAlias = "tuple[tuple[pa.RecordBatch, ...], Frame]"

# Rows that go in one message: enough to make its cost small, few enough that the JVM works while Python still sends.
# A Python function is called for each, so that small batches are joined up to it.
_CHUNK_ROWS: Final = 1 << 14
_JOINED_BYTES: Final = 1 << 22
# An input up to this size is sent in one system call, without a task of its own.
_SMALL_BYTES: Final = 1 << 18
# The result of an input beyond this size is put together beside the event loop.
_LARGE_BYTES: Final = 1 << 20

_WATERMARK: Final = struct.Struct("<q")
_OBSERVED: Final = struct.Struct("<qq")  # the watermark after the run, and the late rows
_NEVER: Final = -(1 << 63)  # no watermark yet


class Mode(StrEnum):
    """How a fragment runs: on the engine's own threads, or as a Spark job on its master."""

    DIRECT = "direct"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class FragmentSpec:
    """What to plan.

    `output` may be left out: it is then what Spark's analysis says. With `partitions` above 1, a row goes to the
    partition that Spark's `hash` of the `partition_by` output columns says (see `partitioning`).

    With an `aggregation`, the rows of `sql` go into its stage, and the stage's rows are `input` of `after`. Each SQL
    may be left empty: the rows (for `sql`, of the only input) then go on as they are. What has a stage or an `after`,
    or observes event time, runs in direct mode whatever the mode is.
    """

    sql: str
    inputs: Mapping[str, pa.Schema]
    output: pa.Schema | None = None
    partition_by: tuple[str, ...] = ()
    partitions: int = 1
    mode: Mode | None = None  # None: as the engine's master says
    aggregation: AggregationStage | None = None
    after: str = ""
    wire_inputs: tuple[pa.Schema, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.inputs) <= MAX_INPUTS:
            raise ValueError(f"a fragment has 1 to {MAX_INPUTS} inputs, not {len(self.inputs)}")
        if self.partitions < 1 or (self.partitions > 1) != bool(self.partition_by):
            raise ValueError("several partitions and the columns to partition by go together")
        if not self.sql and len(self.inputs) != 1:
            raise ValueError("without a query there is one input, whose rows go on as they are")
        object.__setattr__(self, "wire_inputs", tuple(map(conversion.wire_schema, self.inputs.values())))

    def request(self, kind: Kind, mode: Mode, registrations: int = 0) -> bytes:
        """The frames that ask the JVM to plan or analyse this, after so many functions were registered: what is
        planned is remembered by all of the request."""
        content = {
            "sql": self.sql,
            "inputs": list(self.inputs),
            "partition_by": self.partition_by,
            "partitions": self.partitions,
            "mode": mode,
            "after": self.after,
            "registrations": registrations,
        }
        if self.aggregation is None:
            return json_frame(kind, content) + input_frames(self.wire_inputs)
        content["aggregation"] = {"sql": self.aggregation.sql, "stage": self.aggregation.stage}
        aggregated = conversion.wire_schema(self.aggregation.input)
        return json_frame(kind, content) + input_frames((*self.wire_inputs, aggregated))


def input_frames(schemas: Iterable[pa.Schema]) -> bytes:
    """The frames that tell the JVM the schemas of inputs."""
    messages = (schema.serialize() for schema in schemas)
    return b"".join(
        header(Kind.INPUT, slot, message.size) + message.to_pybytes() for slot, message in enumerate(messages)
    )


class Observed(NamedTuple):
    """What a run gives whose query observes event time."""

    batches: tuple[pa.RecordBatch, ...]
    """One per partition."""
    watermark: int | None
    """After all rows of the run, in microseconds since 1970; none as long as no row had one."""
    late_rows: int
    """How often `penstock_on_time` said no."""


class Connector(Protocol):
    """What a fragment needs of its engine."""

    @property
    def registrations(self) -> int:
        """How often a function was registered, which may change what SQL means."""
        ...

    async def ask(self, request: bytes, sql: str) -> tuple[Frame, Wire]:
        """Sends a request on a new connection; returns its answer and the connection, or raises what it reports."""
        ...

    async def cancel(self, number: int) -> None:
        """Ends the run of the connection of that number, if it still has one."""
        ...

    async def lost(self) -> PenstockError:
        """The error to raise when a connection broke."""
        ...


class Fragment:
    """A planned fragment. It has one connection and one JVM thread; runs wait for each other."""

    def __init__(self, spec: FragmentSpec, mode: Mode, connector: Connector) -> None:
        self.spec = spec
        self.mode = mode
        self._connector = connector
        self._wire: Wire | None = None
        self._number = 0
        self._closed = False
        self._lock = asyncio.Lock()
        self._wire_output = pa.schema([])
        self._crossing: Crossing | None = None
        self.output_schema = pa.schema([])

    @classmethod
    async def planned(cls, spec: FragmentSpec, mode: Mode, connector: Connector) -> Fragment:
        """Plans a fragment, or says why it cannot be."""
        fragment = cls(spec, mode, connector)
        await fragment._plan()
        return fragment

    async def _plan(self) -> Wire:
        request = self.spec.request(Kind.PLAN, self.mode, self._connector.registrations)
        frame, self._wire = await self._connector.ask(request, self.spec.sql)
        self._number, planned = frame.slot, pa.ipc.read_schema(frame.payload)
        self._wire_output = planned.remove_metadata()
        self.output_schema = self._wire_output if self.spec.output is None else self.spec.output
        try:
            conversion.refuse_unlike(self.output_schema, self._wire_output)
        except FragmentRefused:
            self._disconnect()
            raise
        self._crossing = self._crossing_of(planned)
        if self._crossing is not None:
            self._wire_output = self._crossing.answer
        return self._wire

    def _crossing_of(self, planned: pa.Schema) -> Crossing | None:
        if len(self.spec.inputs) > 1:
            return None
        (declared,), (wire,) = self.spec.inputs.values(), self.spec.wire_inputs
        return Crossing.planned(planned, declared, wire)

    async def run(self, *inputs: Batches) -> tuple[pa.RecordBatch, ...]:
        """Runs the query on one input (any number of batches) for each of the spec's, in their order.

        Returns one batch per partition. A run that is cancelled, or whose JVM is lost, has no effect.
        """
        if len(inputs) != len(self.spec.inputs):
            raise ValueError(f"the fragment has {len(self.spec.inputs)} inputs, not {len(inputs)}")
        if self._crossing is not None and self._crossing.is_needless and not self._closed:
            return (self._chosen(self._crossing, inputs),)
        batches, _ = await self._run([], inputs)
        return batches

    def _chosen(self, crossing: Crossing, inputs: Sequence[Batches]) -> pa.RecordBatch:
        """Columns that need not go to the JVM and back."""
        (rows,), (declared,) = inputs, self.spec.inputs.values()
        for batch in _each(rows):
            conversion.check(batch, declared)
        return self._declared(crossing.result(self._passed(crossing, inputs), _empty(crossing.answer)))

    async def observe(self, batches: Batches, watermark: int | None) -> Observed:
        """Runs a query over one input that observes event time: the rows are of one partition of a source, whose
        watermark was this before them."""
        before = header(Kind.OBSERVE, 0, _WATERMARK.size) + _WATERMARK.pack(_NEVER if watermark is None else watermark)
        results, done = await self._run([before], [batches])
        after, late_rows = _OBSERVED.unpack(done.payload)
        return Observed(results, None if after == _NEVER else after, late_rows)

    async def _run(self, before: Iterable[Sendable], inputs: Sequence[Batches]) -> _Answer:
        crossing = self._crossing_batches(inputs)
        async with self._lock, self._connected() as wire:
            chunks, done = await self._answer(wire, before, crossing)
        if self._crossing is not None and _size(inputs) > _LARGE_BYTES:
            return await asyncio.to_thread(self._result, chunks, inputs), done
        return self._result(chunks, inputs), done

    async def _answer(
        self, wire: Wire, before: Iterable[Sendable], crossing: Sequence[Sequence[pa.RecordBatch]]
    ) -> _Received:
        frames = itertools.chain(before, _serialise(crossing))
        if _size(crossing) <= _SMALL_BYTES:
            rest = wire.send_now(list(frames))
            return await (self._exchange(wire, rest) if rest else self._receive(wire))
        return await self._exchange(wire, frames)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Wire]:
        """The connection, planned anew when the last run was cut off half-way."""
        if self._closed:
            raise FragmentClosed("the fragment is closed")
        wire = self._wire or await self._plan()
        try:
            yield wire
        except PenstockError:
            raise  # the JVM's own report: both sides are done with the run
        except OSError as error:
            self._disconnect()
            if self._closed:
                raise FragmentClosed("the fragment was closed while it ran") from error
            raise await self._connector.lost() from error
        except BaseException:
            self._disconnect()
            await self._connector.cancel(self._number)
            raise

    def _disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _crossing_batches(self, inputs: Sequence[Batches]) -> Sequence[Sequence[pa.RecordBatch]]:
        if self._crossing is not None:
            (rows,) = inputs
            return [list(self._crossing.sent(_each(rows)))]
        declared = tuple(self.spec.inputs.values())
        return [
            [conversion.to_wire(batch, declared[slot], self.spec.wire_inputs[slot]) for batch in _each(batches)]
            for slot, batches in enumerate(inputs)
        ]

    async def _exchange(self, wire: Wire, frames: Iterable[Sendable]) -> _Received:
        """Sends and receives at the same time, or both sides would wait on full sockets."""
        sending = asyncio.create_task(wire.send(frames))
        receiving = asyncio.create_task(self._receive(wire))
        try:
            await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            sending.cancel()
            receiving.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
        if receiving.cancelled():
            sending.result()
        return receiving.result()

    async def _receive(self, wire: Wire) -> _Received:
        chunks: list[list[pa.RecordBatch]] = [[] for _ in range(self.spec.partitions)]
        while (frame := await wire.receive()).kind is Kind.BATCH:
            chunks[frame.slot].append(pa.ipc.read_record_batch(frame.payload, self._wire_output))
        if frame.kind is Kind.FAILED:
            raise failures.error_of(frame.json(), self.spec.sql)
        return chunks, frame

    def _result(self, chunks: _Chunks, inputs: Sequence[Batches]) -> tuple[pa.RecordBatch, ...]:
        answers = [_joined(some, self._wire_output) for some in chunks]
        if self._crossing is not None:
            passed = self._passed(self._crossing, inputs)
            answers = [self._crossing.result(passed, answer) for answer in answers]
        return tuple(map(self._declared, answers))

    @staticmethod
    def _passed(crossing: Crossing, inputs: Sequence[Batches]) -> pa.RecordBatch:
        (rows,) = inputs
        return _joined([crossing.passed(batch) for batch in _each(rows)], crossing.passed_schema)

    def _declared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.schema.equals(self.output_schema) else conversion.cast(batch, self.output_schema)

    async def close(self) -> None:
        """Frees the connection and the JVM's thread; a run under way ends with `FragmentClosed`."""
        self._closed = True
        if self._lock.locked() and self._wire is not None:
            self._wire.shut()
            await self._connector.cancel(self._number)
        async with self._lock:
            self._disconnect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _size(inputs: Sequence[Batches]) -> int:
    return sum(batch.nbytes for batches in inputs for batch in _each(batches))


def _each(batches: Batches) -> Sequence[pa.RecordBatch]:
    return (batches,) if isinstance(batches, pa.RecordBatch) else batches


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return _concatenated(batches) if batches else _empty(schema)


def _concatenated(chunks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(chunks) == 1:
        return chunks[0]
    try:
        return pa.concat_batches(chunks)
    except pa.ArrowInvalid as error:  # the offsets of text, bytes and lists have 32 bits
        raise EngineMemory(f"the result of one run does not fit one batch: {error}", hint=MEMORY_HINT) from error


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _serialise(inputs: Sequence[Sequence[pa.RecordBatch]]) -> Iterator[Sendable]:
    """Frames made as they are sent: a large input is never held twice."""
    for slot, batches in enumerate(inputs):
        for batch in _small_joined(batches):
            for start in range(0, batch.num_rows, _CHUNK_ROWS):
                message = batch.slice(start, _CHUNK_ROWS).serialize()
                yield header(Kind.BATCH, slot, message.size)
                yield message
    yield header(Kind.RUN)


def _small_joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, where several batches fit one message in one batch."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if waiting and (rows > _CHUNK_ROWS or size > _JOINED_BYTES):
            yield _concatenated(waiting)
            waiting, rows, size = [], batch.num_rows, batch.nbytes
        waiting.append(batch)
    if waiting:
        yield _concatenated(waiting)
