"""Runs the user's source in a process of its own, under limits, to learn what its function is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from penstock.common.diagnostics import Diagnostic, Severity, Span
from penstock.common.quantities import format_duration, format_size
from penstock.common.udfs import Shape, Signature
from penstock.compiler.diagnostics import Refused

_MOST_BYTES: Final = 1 << 20
_GRACE_SECONDS: Final = 2.0
_START_SECONDS: Final = 20.0  # for the interpreter to come up, which is not the source's time
# Enough to run Python, and nothing that is the service's own.
_ENVIRONMENT: Final = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What a source may take."""

    timeout: timedelta
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Question:
    """A source, and which of its functions is meant; None: the only public one."""

    source: str
    name: str | None
    shape: Shape | None
    path: tuple[Path, ...]
    """Where its dependencies are."""

    @property
    def file(self) -> str:
        return f"{self.name or 'udf'}.py"


async def inspect(question: Question, limits: ChildLimits) -> Signature:
    """The signature of a source's function; raises Refused, with a span in the source."""
    request = {
        "source": question.source,
        "file": question.file,
        "name": question.name,
        "shape": question.shape,
        "path": [str(folder) for folder in question.path],
        "seconds": limits.timeout.total_seconds(),
        "memory_bytes": limits.memory_bytes,
    }
    answered, faults, code = await _ask(json.dumps(request).encode(), limits)
    if not answered:
        raise _ended(question, limits, faults, code)
    answer: dict[str, Any] = json.loads(answered)
    if "signature" in answer:
        return Signature.from_json(answer["signature"])
    message = answer["message"]
    if answer["code"] == "udf_memory":
        message = f"{message}: {format_size(limits.memory_bytes)}"
    span = None if answer["place"] is None else Span(*answer["place"])
    raise Refused(Diagnostic(Severity.ERROR, answer["code"], message, answer["hint"], span))


async def _ask(request: bytes, limits: ChildLimits) -> tuple[bytes, str, int]:
    """The answer, what was said at the end of time, and the exit code of the process."""
    with tempfile.TemporaryDirectory(prefix="penstock-udf-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "penstock.udf.inspection"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            async with asyncio.timeout(limits.timeout.total_seconds() + _GRACE_SECONDS + _START_SECONDS):
                with suppress(ConnectionError):
                    process.stdin.write(request)
                    await process.stdin.drain()
                process.stdin.close()
                reading = _bounded(process.stdout), _bounded(process.stderr)
                answered, faults = await asyncio.gather(*reading)
                await process.wait()
        except TimeoutError:
            answered, faults = b"", b"Timeout"
        finally:
            with suppress(ProcessLookupError):  # with all that it has started
                os.killpg(process.pid, signal.SIGKILL)
            code = await process.wait()
    return answered, faults.decode(errors="replace"), code


def _environment(folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # Each thread of a pool would take some of the memory that the source may have.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **threads, "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while chunk := await stream.read(1 << 16):
        if len(found) < _MOST_BYTES:
            found += chunk
    return bytes(found)


def _ended(question: Question, limits: ChildLimits, faults: str, code: int) -> Refused:
    """Why there is no answer."""
    if "Timeout" in faults:
        message = f"the source is not loaded within {format_duration(limits.timeout)}"
        hint = "do nothing slow outside of functions"
        return Refused(Diagnostic(Severity.ERROR, "udf_timeout", message, hint, _last_line(question, faults)))
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    message = f"the process that loads the source ended with {how}"
    return Refused(Diagnostic(Severity.ERROR, "udf_fails", message, None, None))


def _last_line(question: Question, faults: str) -> Span | None:
    """The line of the source that was running; the innermost frame comes first."""
    found = re.search(rf'File "{re.escape(question.file)}", line (\d+)', faults)
    lines: Sequence[str] = question.source.splitlines()
    if found is None or not 1 <= int(found[1]) <= len(lines):
        return None
    text = lines[int(found[1]) - 1]
    begin = len(text) - len(text.lstrip()) + 1
    return Span(int(found[1]), begin, int(found[1]), max(begin, len(text.rstrip())))
