"""One worker's process: how it is started, what it last said, and how it is ended for certain."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from penstock.common.ids import WorkerId

_KEPT_LINES: Final = 20
_LONGEST_LINE: Final = 500
_LAST_WORDS_SECONDS: Final = 0.5
_CHUNK: Final = 64 * 1024


class WorkerProcess:
    """A worker and, through its process group, its JVM. Its stdin is a pipe that is never written to: that it closes,
    which it does however the node ends, tells the worker to end. What it logs goes on to the node's stderr."""

    def __init__(self, worker: WorkerId, process: asyncio.subprocess.Process, lifeline: int, stderr: int) -> None:
        self.worker = worker
        self.pid = process.pid
        self._process = process
        self._lifeline = lifeline
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self._reader = asyncio.create_task(self._pass_on(stderr), name=f"stderr-{worker}")

    @classmethod
    async def start(cls, worker: WorkerId, command: Sequence[str], environment: Mapping[str, str]) -> WorkerProcess:
        """Raises OSError when the command cannot be run."""
        # Pipes of our own: with asyncio's, a process has not ended before all that share its pipes have.
        (stdin, lifeline), (stderr, stderr_end) = os.pipe(), os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stderr=stderr_end,
                env=environment,
                # Ctrl-C is the node's; and a group can be killed as a whole.
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            os.close(stderr)
            raise
        finally:
            os.close(stdin)
            os.close(stderr_end)
        return cls(worker, process, lifeline, stderr)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its stderr."""
        return tuple(self._tail)

    async def wait(self) -> int:
        """Return its exit code once it has ended, its last words are passed on and nothing that it started is left."""
        code = await self._process.wait()
        self._signal(signal.SIGKILL)
        os.close(self._lifeline)
        await asyncio.wait({self._reader}, timeout=_LAST_WORDS_SECONDS)
        self._reader.cancel()
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM, group=False)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals, *, group: bool = True) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    async def _pass_on(self, stderr: int) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stderr, "rb", 0)
        )
        begun = b""
        try:
            while chunk := await reader.read(_CHUNK):
                *lines, begun = (begun + chunk).split(b"\n")
                if len(begun) > _CHUNK:
                    lines, begun = [*lines, begun], b""
                self._write(lines)
        finally:
            self._write([begun] if begun else [])
            transport.close()

    def _write(self, lines: list[bytes]) -> None:
        """Whole lines only: those of several workers would else be mixed."""
        texts = [line.decode(errors="replace") for line in lines]
        self._tail.extend(text.rstrip()[:_LONGEST_LINE] for text in texts)
        sys.stderr.write("".join(f"{text}\n" for text in texts))
        sys.stderr.flush()
