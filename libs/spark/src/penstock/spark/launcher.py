"""The engine's JVM process: how it is started, watched, and ended for certain."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from penstock.common.events import LogEvent
from penstock.spark.bridge import SOURCES, find_bridge, spark_home
from penstock.spark.class_cache import ClassCache
from penstock.spark.errors import EngineLost
from penstock.spark.java import Java, find_java
from penstock.spark.session import spark_conf
from penstock.spark.settings import SparkSettings

_MAIN: Final = "org.apache.spark.sql.execution.penstock.Main"
_READY: Final = b"penstock: ready\n"
_LONGEST_LINE: Final = 500
_KEPT_LINES: Final = 40  # of the JVM's output, to say why it ended
# A Unix socket's path has 104 bytes on some systems; Spark's own sockets there are named by a UUID.
_LONGEST_FOLDER: Final = 104 - len("/.01234567-0123-0123-0123-0123456789ab.sock") - 1
_EXIT_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 0.4  # for what a dead JVM printed to arrive

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """All that a start needs to know, found once."""

    settings: SparkSettings
    java: Java
    jar: Path
    class_path: tuple[Path, ...]

    @classmethod
    def prepare(cls, settings: SparkSettings) -> LaunchPlan:
        """Finds Java and the bridge, building the bridge when it is not there yet."""
        java = find_java(settings.java_home)
        jar = find_bridge(settings.cache_path, java)
        return cls(settings, java, jar, (jar, *sorted((spark_home() / "jars").glob("*.jar"))))

    @property
    def options(self) -> tuple[str, ...]:
        """The JVM's options: the ones a class cache depends on, then those it does not."""
        return (
            *self.java.options,
            f"-Xmx{self.settings.heap}",
            f"-XX:MaxDirectMemorySize={self.settings.off_heap}",
            f"-Dio.netty.maxDirectMemory={self.settings.off_heap}",
            f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}",
        )

    @property
    def class_cache(self) -> ClassCache:
        """The class cache that fits this plan."""
        return ClassCache.of(self.settings.cache_path, self.java, self.class_path)


class Jvm:
    """A running JVM, its work folder and its socket."""

    def __init__(self, process: asyncio.subprocess.Process, work: Path) -> None:
        self._process = process
        self._work = work
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._ready = asyncio.Event()
        self._closing = False
        self.ended = asyncio.Event()
        self._watcher = asyncio.create_task(self._watch(), name=f"jvm-{process.pid}")

    @classmethod
    async def launch(cls, plan: LaunchPlan, extra: tuple[str, ...] = (), exit_seconds: float = _EXIT_SECONDS) -> Jvm:
        """Starts a JVM and waits until its session takes connections."""
        work = _work_folder()
        try:
            setup = {
                "parent": os.getpid(),
                "work": str(work),
                "socket": str(work / "bridge.sock"),
                "memory_limit": plan.settings.off_heap,
                "exit_ms": int(exit_seconds * 1000),
                "conf": spark_conf(plan.settings, plan.jar, work),
            }
            process = await _spawn(plan, extra, work)
        except BaseException:
            work.rmdir()
            raise
        jvm = cls(process, work)
        try:
            await jvm._await_ready(setup, plan.settings.start_timeout.total_seconds())
        except BaseException:
            await jvm.close(within_seconds=0)
            raise
        return jvm

    async def _await_ready(self, setup: object, within_seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(setup).encode() + b"\n")
        try:
            async with asyncio.timeout(within_seconds):
                await self._ready.wait()
        except TimeoutError:
            hint = "raise spark.start_timeout"
            raise EngineLost(f"the JVM was not ready within {within_seconds:g} s", hint=hint) from None
        if self.ended.is_set():
            raise await self.lost()

    async def _watch(self) -> None:
        """Waits for the JVM's end. Its output may stay open longer: Python workers of its own hold it too."""
        reader = asyncio.create_task(self._read(), name=f"jvm-{self.pid}-output")
        code = await self._process.wait()
        await asyncio.wait((reader,), timeout=_LAST_WORDS_SECONDS)
        reader.cancel()
        self.ended.set()
        self._ready.set()
        if not self._closing:
            log.error(LogEvent.ENGINE_LOST, pid=self.pid, code=code, reason=self._reason())

    async def _read(self) -> None:
        """Reads all that the JVM prints."""
        assert self._process.stdout is not None
        while line := await self._read_line(self._process.stdout):
            if line == _READY:
                self._ready.set()
            else:
                self._take_line(line.decode(errors="replace").rstrip())

    @staticmethod
    async def _read_line(stream: asyncio.StreamReader) -> bytes:
        try:
            return await stream.readline()
        except ValueError:  # longer than the reader's limit; the rest comes as further lines
            return b"(a line too long to show)\n"

    def _take_line(self, line: str) -> None:
        line = line[:_LONGEST_LINE]
        self._last_lines.append(line)
        level = line.partition(" ")[0]
        write = {"ERROR": log.error, "FATAL": log.error, "WARN": log.warning}.get(level, log.debug)
        write(LogEvent.JVM_LOG, pid=self.pid, line=line)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def socket_path(self) -> str:
        """Where the bridge listens."""
        return str(self._work / "bridge.sock")

    async def lost(self) -> EngineLost:
        """The error that says that the JVM is gone, and how; it is given a moment to be gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS * 2):
                await self.ended.wait()
        code = self._process.returncode
        if code is None:
            return EngineLost("the Spark JVM closed its connection")
        ended = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return EngineLost(": ".join(filter(None, (f"the Spark JVM {ended}", self._reason()))))

    def _reason(self) -> str:
        """The line of the JVM's output that says most: the innermost cause, else the last error."""
        lines = [line for line in self._last_lines if not line.startswith(("\t", " "))]
        causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
        errors = [line for line in lines if line.startswith(("Exception", "ERROR", "FATAL", "Error"))]
        return next((found[-1] for found in (causes, errors, lines) if found), "")

    async def close(self, within_seconds: float) -> None:
        """Asks the JVM to exit, ends it when it has not done so in time, and removes its folder."""
        self._closing = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(within_seconds):
                await self.ended.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._watcher
        await asyncio.to_thread(shutil.rmtree, self._work, ignore_errors=True)


async def _spawn(plan: LaunchPlan, extra: tuple[str, ...], work: Path) -> asyncio.subprocess.Process:
    class_path = os.pathsep.join(map(str, plan.class_path))
    return await asyncio.create_subprocess_exec(
        plan.java.executable, *plan.options, *extra, f"-Djava.io.tmpdir={work}", "-cp", class_path, _MAIN,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            **os.environ,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_DIRS": str(work / "local"),
            "MALLOC_ARENA_MAX": "2",  # or glibc keeps a heap for each of the JVM's threads
        },
        start_new_session=True,  # Ctrl-C is for Python, which then ends the JVM
    )  # fmt: skip


def _work_folder() -> Path:
    """A folder that only this user can enter, with a path short enough for a socket in it."""
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_FOLDER - len("/penstock-engine-01234567"):
        base = "/tmp"
    return Path(tempfile.mkdtemp(prefix="penstock-engine-", dir=base))
