"""An engine in a process of its own that runs one job after the other: a JSON object a line in, one a line back.

It says its version first. Each job is answered with its `seconds`, or with `refused` and the engine's own reason.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from environments import PeerUnavailable


class JobRefused(Exception):
    """The engine does not do what it was asked for; the message is its own."""


@dataclass(frozen=True, slots=True)
class Command:
    """How the process is started."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """What is set beside the environment that there is."""


class Session:
    """The process, and what it starts."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.version = str(self._answer())

    @property
    def processes(self) -> list[psutil.Process]:
        """The process and all below it."""
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def run(self, job: Mapping[str, object]) -> float:
        """Runs a job to its end; returns its seconds. JobRefused if it cannot be done."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerUnavailable("its session has ended") from None
        answer = self._answer()
        assert isinstance(answer, dict)
        if "refused" in answer:
            raise JobRefused(answer["refused"])
        return float(answer["seconds"])

    def _answer(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._log.read_text(errors="replace").split("\n")
            last = next((line for line in reversed(said) if line.strip()), "it said nothing")
            raise PeerUnavailable(f"its session ended with {self._process.wait()}: {last}")
        return json.loads(line)


@contextmanager
def session(command: Command, log: Path) -> Iterator[Session]:
    """Starts a session and ends it; what it says goes to a file. PeerUnavailable where it does not start."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command.arguments,
            env={**os.environ, **command.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    started: list[psutil.Process] = []
    try:
        opened = Session(process, log)
        started = opened.processes
        yield opened
    finally:
        for one in started[1:]:
            if one.is_running():
                one.kill()
        process.kill()
        process.wait()
