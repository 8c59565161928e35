"""What a query takes on an engine: a session of its own, a first run, runs that warm, and runs that count."""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from environments import PeerUnavailable
from peers.answers import Answers, read_answers
from peers.base import Engine, NotWritten
from peers.events import Files
from peers.queries import Query
from sessions import Command, JobRefused, Session, session

_SAMPLED_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often a query is run."""

    warming: int
    counted: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What a query took."""

    events: int
    cold_seconds: float
    """The first run of the process; not the start of the process."""
    steady_seconds: tuple[float, ...]
    """The counted runs."""
    cpu_seconds: tuple[float, ...]
    """Of the counted runs, in all processes of the engine."""
    peak_bytes: int
    """The most memory that its processes had together, from the first run to the last."""
    answers: Answers

    @property
    def cold_rate(self) -> float:
        return self.events / self.cold_seconds

    @property
    def steady_rate(self) -> float:
        return self.events / statistics.median(self.steady_seconds)

    @property
    def cpu_per_million(self) -> float:
        return statistics.median(self.cpu_seconds) / self.events * 1e6


@dataclass(frozen=True, slots=True)
class NotRun:
    """A query that an engine does not do."""

    reason: str


class Contender:
    """An engine in its session."""

    def __init__(self, engine: Engine, opened: Session, memory: _Memory) -> None:
        self._engine = engine
        self._opened = opened
        self._memory = memory

    def measure(self, query: Query, files: Files, rounds: Rounds) -> Measured | NotRun:
        """Runs a query, and once more into files after everything that is timed."""
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results"
            results.mkdir()
            try:
                timed, checked = (self._engine.job(query, files, into) for into in (None, results))
                cold = self._opened.run(timed)
                for _ in range(rounds.warming):
                    self._opened.run(timed)
                counted = [_counted(self._opened, timed) for _ in range(rounds.counted)]
                peak = self._memory.peak_bytes
                self._opened.run(checked)
            except (JobRefused, NotWritten, PeerUnavailable) as reason:
                return NotRun(str(reason))
            seconds, cpu = zip(*counted, strict=True)
            return Measured(files.events, cold, seconds, cpu, peak, read_answers(query, self._engine.form, results))


@contextmanager
def contender(engine: Engine, command: Command) -> Iterator[Contender]:
    """Starts a session. PeerUnavailable where it does not start."""
    with (
        tempfile.TemporaryDirectory() as folder,
        session(command, Path(folder) / "log") as opened,
        _watched(opened) as memory,
    ):
        yield Contender(engine, opened, memory)


def _counted(opened: Session, job: Mapping[str, object]) -> tuple[float, float]:
    before = _cpu_seconds(opened)
    seconds = opened.run(job)
    return seconds, _cpu_seconds(opened) - before


def _cpu_seconds(opened: Session) -> float:
    """Of all processes that there are, and of those that have ended below them."""
    times = [process.cpu_times() for process in opened.processes]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


@dataclass(slots=True)
class _Memory:
    peak_bytes: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self, opened: Session) -> None:
        while not self.ended.wait(_SAMPLED_SECONDS):
            self.peak_bytes = max(self.peak_bytes, _resident_bytes(opened))


def _resident_bytes(opened: Session) -> int:
    """Of all its processes; 0 if one ends while they are counted, since the next count is soon."""
    try:
        return sum(process.memory_info().rss for process in opened.processes)
    except psutil.NoSuchProcess:
        return 0


@contextmanager
def _watched(opened: Session) -> Iterator[_Memory]:
    memory = _Memory()
    thread = threading.Thread(target=memory.watch, args=(opened,), daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        memory.ended.set()
        thread.join()
