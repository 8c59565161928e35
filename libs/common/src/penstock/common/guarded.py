"""A server as a child process that never outlives its parent, whichever way the parent ends."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from penstock.common import guardian
from penstock.common.errors import ExternalError
from penstock.common.events import LogEvent

_KEPT_LINES: Final = 8  # of the output, to say why it ended
_LONGEST_LINE: Final = 500
_LAST_WORDS_SECONDS: Final = 0.2  # for what a dead server printed to arrive

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """What to run: `ready` is the line by which the server tells that it serves, `user` whom it runs as."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    ready: re.Pattern[str]
    user: str = ""


class ServerEnded(ExternalError):
    """A server ended by itself while it was started."""


class GuardedProcess:
    """A running server. It sits in a session of its own, so that Ctrl-C reaches the parent alone."""

    def __init__(self, command: ServerCommand, process: asyncio.subprocess.Process) -> None:
        self._command = command
        self._process = process
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._ready: asyncio.Future[re.Match[str]] = asyncio.get_running_loop().create_future()
        self._stopping = False
        self.pid = 0
        self.ended = asyncio.Event()
        self._watcher = asyncio.create_task(self._watch(), name=f"{command.name}-watch")

    @classmethod
    async def start(cls, command: ServerCommand, within_seconds: float) -> tuple[GuardedProcess, re.Match[str]]:
        """Start a server and wait until it serves; raises ServerEnded or ExternalError when it does not."""
        server = cls(command, await _spawn(command))
        try:
            async with asyncio.timeout(within_seconds):
                return server, await server._ready
        except TimeoutError:
            await server.stop()
            raise ExternalError(f"{command.name} was not ready within {within_seconds:g} s") from None
        except BaseException:
            await server.stop()
            raise

    async def stop(self) -> None:
        """Ask the server to end, and return once it has, which is sure within some seconds."""
        self._stopping = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._watcher

    async def _watch(self) -> None:
        reader = asyncio.create_task(self._read(), name=f"{self._command.name}-output")
        code = await self._process.wait()
        await asyncio.wait((reader,), timeout=_LAST_WORDS_SECONDS)
        reader.cancel()
        self.ended.set()
        if not self._ready.done():
            reason = self._reason() or f"exit code {code}"
            self._ready.set_exception(ServerEnded(f"{self._command.name} ended while it was started: {reason}"))
        elif not self._stopping:
            log.error(LogEvent.EMBEDDED_LOST, server=self._command.name, code=code, reason=self._reason())

    def _reason(self) -> str:
        return "; ".join(self._lines)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await _read_line(self._process.stdout):
            text = line.decode(errors="replace").rstrip()[:_LONGEST_LINE]
            if text.startswith(guardian.PID_LINE):
                self.pid = int(text.removeprefix(guardian.PID_LINE))
                continue
            self._lines.append(text)
            log.debug(LogEvent.EMBEDDED_LOG, server=self._command.name, line=text)
            match = self._command.ready.search(text)
            if match and not self._ready.done():
                self._ready.set_result(match)
                self._lines.clear()


async def run_guarded(command: ServerCommand) -> tuple[int, str]:
    """Run a command that ends by itself: its exit code and output."""
    process = await _spawn(command)
    assert process.stdin is not None and process.stdout is not None
    try:
        output = await process.stdout.read()
    finally:
        process.stdin.close()
        code = await process.wait()
    lines = output.decode(errors="replace").splitlines()
    return code, "\n".join(line for line in lines if not line.startswith(guardian.PID_LINE))


async def _spawn(command: ServerCommand) -> asyncio.subprocess.Process:
    file = str(Path(guardian.__file__))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", file, command.user, *command.arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=command.environment,
        cwd="/",
        start_new_session=True,
    )  # fmt: skip


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the reader's limit; the rest comes as further lines
        return b"(a line too long to show)\n"
