"""The engine: a Spark session in a JVM of its own, on which fragments are planned and run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
import structlog

from penstock.common.errors import PenstockError
from penstock.common.events import LogEvent
from penstock.spark import conversion, failures, udfs
from penstock.spark.aggregation import AggregationAnalysis
from penstock.spark.answers import Answers
from penstock.spark.errors import EngineLost
from penstock.spark.exercise import exercise
from penstock.spark.fragment import Fragment, FragmentSpec, Mode, input_frames
from penstock.spark.functions import FunctionKind
from penstock.spark.launcher import Jvm, LaunchPlan
from penstock.spark.line_decoder import LineDecoder, can_decode
from penstock.spark.narrowing import narrowed
from penstock.spark.python_session import PythonSession
from penstock.spark.settings import SparkSettings
from penstock.spark.udfs import Udf, UdfKind
from penstock.spark.wire import Frame, Kind, Wire, header, json_frame

_CANCEL_SECONDS: Final = 1.0
_RECORD_SECONDS: Final = 120.0  # for a JVM to write its class cache when it exits

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What the JVM uses; sizes in bytes."""

    connections: int
    plans: int
    """How many are remembered, for whoever asks for the same."""
    threads: int
    heap_used: int
    heap_committed: int
    arrow_allocated: int
    arrow_limit: int
    direct_reserved: int
    spark_execution: int


class Engine:
    """A running engine."""

    def __init__(self, jvm: Jvm, settings: SparkSettings) -> None:
        self._jvm = jvm
        self._settings = settings
        self._session: PythonSession | None = None
        self._attaching = asyncio.Lock()
        self._registering = asyncio.Lock()
        self._registered: dict[str, Udf] = {}
        self._registrations = 0
        self._answers = Answers()

    @classmethod
    async def start(cls, settings: SparkSettings) -> Engine:
        """Starts a JVM with a session in it. The first start on a machine also builds what later ones reuse."""
        started_at = time.monotonic()
        plan = await asyncio.to_thread(LaunchPlan.prepare, settings)
        extra: tuple[str, ...] = ()
        if settings.class_cache:
            await cls.make_class_cache(plan)
            extra = plan.class_cache.use_options()
        log.debug(LogEvent.ENGINE_STARTING, java=plan.java.version, master=settings.master)
        engine = cls(await Jvm.launch(plan, extra), settings)
        duration_ms = round((time.monotonic() - started_at) * 1000)
        log.info(LogEvent.ENGINE_STARTED, pid=engine.pid, duration_ms=duration_ms, class_cache=bool(extra))
        return engine

    @classmethod
    async def make_class_cache(cls, plan: LaunchPlan) -> None:
        """Records the class cache of this plan unless it is there. A failure costs start-up time and nothing else."""
        cache = plan.class_cache
        if cache.is_settled:
            return
        started_at = time.monotonic()
        try:
            with cache.recording() as recorded:
                if recorded is None:
                    return
                log.info(LogEvent.CLASS_CACHE_BUILDING, note="once for this Java and version, in about half a minute")
                jvm = await Jvm.launch(plan, cache.record_options(recorded), exit_seconds=_RECORD_SECONDS)
                try:
                    await exercise(cls(jvm, plan.settings))
                finally:
                    await jvm.close(_RECORD_SECONDS)
        except PenstockError as error:
            log.warning(LogEvent.CLASS_CACHE_FAILED, reason=str(error))
            return
        if cache.path.exists():
            duration_ms = round((time.monotonic() - started_at) * 1000)
            log.info(LogEvent.CLASS_CACHE_BUILT, path=str(cache.path), duration_ms=duration_ms)
        else:
            log.info(LogEvent.CLASS_CACHE_FAILED, reason="this Java records none")

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._jvm.pid

    @property
    def registrations(self) -> int:
        """How often a function was registered, which may change what SQL means."""
        return self._registrations

    async def plan(self, spec: FragmentSpec) -> Fragment:
        """Plans a fragment; others may be planned or run meanwhile."""
        mode = spec.mode or (Mode.JOB if self._settings.runs_jobs else Mode.DIRECT)
        return await Fragment.planned(spec, mode, self)

    async def schema_of(self, sql: str, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        """The columns of a query's rows; an error in the SQL raises `SqlError` with its position."""
        request = FragmentSpec(sql, inputs).request(Kind.SCHEMA_OF, Mode.DIRECT)
        return pa.ipc.read_schema((await self._known_answer(request, sql)).payload)

    async def used_by(self, sql: str, inputs: Mapping[str, pa.Schema]) -> Mapping[str, pa.Schema]:
        """How little of its inputs gives a query the same rows; errors as `schema_of` has them.

        Each input keeps its columns' order and metadata, and at least one column, so that rows that nothing is read of
        can still be counted. It takes several times as long as `schema_of`, since it is proved.
        """
        request = FragmentSpec(sql, inputs).request(Kind.USED, Mode.DIRECT)
        return narrowed(inputs, (await self._known_answer(request, sql)).json())

    async def analyse_aggregation(self, sql: str, schema: pa.Schema) -> AggregationAnalysis:
        """What `SELECT keys…, aggregates… FROM input GROUP BY keys…` over rows of a schema gives and holds; errors as
        `schema_of` has them, and `FragmentRefused` for what Spark cannot compute in stages."""
        inputs = input_frames([conversion.wire_schema(schema)])
        request = json_frame(Kind.ANALYSE_AGGREGATION, {"sql": sql}) + inputs
        return AggregationAnalysis.of((await self._known_answer(request, sql)).json())

    async def explain(self, spec: FragmentSpec) -> str:
        """The physical plan that a fragment runs in direct mode, as Spark prints it."""
        frame = await self._answer(spec.request(Kind.EXPLAIN, Mode.DIRECT), spec.sql)
        return str(frame.json()["plan"])

    def line_decoder(self, schema: pa.Schema, max_line_bytes: int) -> LineDecoder | None:
        """A decoder of JSON lines into rows of a schema; None when it has a type that is not decoded here.

        Called on the event loop; the decoder is then used in threads.
        """
        if not can_decode(schema):
            return None
        loop = asyncio.get_running_loop()

        def lost() -> EngineLost:
            return asyncio.run_coroutine_threadsafe(self.lost(), loop).result()

        return LineDecoder(schema, max_line_bytes, self._jvm.socket_path, lost)

    async def functions(self) -> Mapping[str, FunctionKind]:
        """All functions that SQL can call now by their names, registered Python functions included."""
        answer = (await self._known_answer(header(Kind.FUNCTIONS))).json()
        return {name: FunctionKind(kind) for name, kind in answer.items()}

    async def status(self, *, collect: bool = False) -> EngineStatus:
        """What the JVM uses now; with `collect`, after a garbage collection, which stops it for a moment."""
        return EngineStatus(**(await self._answer(header(Kind.STATUS, int(collect)))).json())

    async def register(self, udf: Udf) -> None:
        """Makes a Python function callable in fragments planned from now on."""
        async with self._registering:
            if self._registered.get(udf.name) != udf:
                await self._register(udf)

    async def declare(self, name: str, returns: pa.DataType) -> None:
        """Lets queries be analysed that call a function of arrays, before it is registered."""
        async with self._registering:
            if name not in self._registered:
                await self._register(Udf(name, udfs.stand_in, returns, UdfKind.ARROW))

    async def _register(self, udf: Udf) -> None:
        try:
            async with self._attaching:
                if self._session is None:
                    self._session = await self._attach()
            await asyncio.to_thread(udfs.register, self._session, udf)
            self._registered[udf.name] = udf
            self._registrations += 1
            self._answers.clear()
        except ConnectionError as error:
            raise await self.lost() from error

    async def _attach(self) -> PythonSession:
        frame = await self._answer(header(Kind.ATTACH))
        return await asyncio.to_thread(PythonSession.attach, **frame.json())

    async def _known_answer(self, request: bytes, sql: str = "") -> Frame:
        """The answer to a question that has the same one until a function is registered."""
        if (frame := self._answers.get(request)) is None:
            frame = await self._answer(request, sql)
            self._answers.keep(request, frame)
        return frame

    async def _answer(self, request: bytes, sql: str = "") -> Frame:
        """Asks one question on a connection of its own."""
        frame, wire = await self.ask(request, sql)
        wire.close()
        return frame

    async def ask(self, request: bytes, sql: str) -> tuple[Frame, Wire]:
        """Sends a request on a new connection; returns its answer and the connection, or raises what it reports."""
        wire = await self._connect()
        try:
            await wire.send([request])
            frame = await wire.receive()
            if frame.kind is Kind.FAILED:
                raise failures.error_of(frame.json(), sql)
        except OSError as error:
            wire.close()
            raise await self.lost() from error
        except BaseException:
            wire.close()
            raise
        return frame, wire

    async def cancel(self, number: int) -> None:
        """Ends the run of the connection of that number, if it still has one."""
        with suppress(OSError, EngineLost, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                wire = await self._connect()
                await wire.send([header(Kind.CANCEL, number)])
                wire.close()

    async def _connect(self) -> Wire:
        try:
            return await Wire.connect(self._jvm.socket_path)
        except OSError as error:
            raise await self.lost() from error

    async def lost(self) -> EngineLost:
        """The error to raise when a connection broke: only a dead JVM breaks one."""
        return await self._jvm.lost()

    async def ended(self) -> EngineLost:
        """Waits until the JVM is gone, closed or lost, and returns the error that says how. Any number may wait."""
        await self._jvm.ended.wait()
        return await self.lost()

    async def close(self) -> None:
        """Ends the JVM and everything on it."""
        session, self._session = self._session, None
        if session is not None:
            await asyncio.to_thread(session.close)
        await self._jvm.close(self._settings.stop_timeout.total_seconds())
        log.info(LogEvent.ENGINE_STOPPED, pid=self.pid)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
