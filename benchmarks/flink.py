"""The peer Flink: how its session is started, in an environment of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from environments import environment, java_home
from sessions import Command, Session, session

FLINK: Final = "apache-flink==2.3.0"
_SESSION: Final = Path(__file__).with_name("flink_session.py")


def flink_command(script: Path = _SESSION, heap_bytes: int | None = None) -> Command:
    """Its Python and its Java, for a session. PeerUnavailable where there is none to be had."""
    folder = environment(FLINK)
    surroundings = {"JAVA_HOME": str(java_home(folder)), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    if heap_bytes is not None:
        surroundings["JVM_ARGS"] = f"-Xmx{heap_bytes}"
    return Command([str(folder / "bin/python"), str(script)], surroundings)


@contextmanager
def flink(log: Path) -> Iterator[Session]:
    """Starts a session of jobs: `statements`, of which the last is an INSERT, and `settings`."""
    with session(flink_command(), log) as opened:
        yield opened
