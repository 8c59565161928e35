"""What the commands of comparisons have in common: engines that are prepared, the machine, progress, an option."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import psutil
from environments import PeerUnavailable
from peers.measuring import NotRun
from sessions import Command


class Preparable(Protocol):
    """An engine whose environment is made."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def prepare(self) -> Callable[[], Command]: ...


def prepared(engines: Sequence[Preparable]) -> tuple[dict[str, Command | NotRun], dict[str, str]]:
    """How each is started, or why it cannot be had; and what it is."""
    commands: dict[str, Command | NotRun] = {}
    versions: dict[str, str] = {}
    for engine in engines:
        say(f"preparing {engine.name}")
        try:
            commands[engine.name] = engine.prepare()
            versions[engine.name] = engine.version
        except PeerUnavailable as reason:
            commands[engine.name] = NotRun(f"not available: {reason}")
            versions[engine.name] = "not available"
    return commands, versions


def machine() -> str:
    """Its cores and its memory."""
    memory = psutil.virtual_memory().total / (1 << 30)
    names = [line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    return f"{os.cpu_count()} cores ({names[0] if names else os.uname().machine}), {memory:.0f} GiB"


def load_since(before: float) -> str:
    """The load average when a comparison began and when it ended."""
    return f"{before:.1f} when it began, {os.getloadavg()[0]:.1f} when it ended, which includes its own"


def say(what: str) -> None:
    """Progress, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an option: some of the names that there are, with commas between them."""

    def names(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return found

    return names


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
