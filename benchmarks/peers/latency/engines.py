"""How each engine's session is started, and whether it needs a feeder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from environments import environment
from flink import FLINK, flink_command
from peers.bytewax_engine import BYTEWAX
from peers.spark_engine import StructuredStreaming
from sessions import Command

_BENCHMARKS: Final = Path(__file__).parents[2]
_SESSIONS: Final = Path(__file__).parent
_HEAP: Final = 2 << 30


@dataclass(frozen=True, slots=True)
class Engine:
    """Penstock or a peer. Its session is told a case, `port` and `into`, a file to which it writes what arrived."""

    name: str
    version: str
    prepare: Callable[[], Command]
    """Makes the environment if there is none; PeerUnavailable where it cannot be had."""
    is_fed: bool = True


def _ours(module: str, *arguments: str) -> Command:
    return Command([sys.executable, "-m", f"peers.latency.{module}", *arguments], {"PYTHONPATH": str(_BENCHMARKS)})


def _bytewax() -> Command:
    return Command([str(environment(*BYTEWAX) / "bin/python"), str(_SESSIONS / "bytewax_session.py")])


ENGINES: Final[Sequence[Engine]] = (
    Engine("penstock", "of this repository", lambda: _ours("penstock_session"), is_fed=False),
    Engine("flink", FLINK, lambda: flink_command(_SESSIONS / "flink_session.py", _HEAP)),
    Engine("spark", StructuredStreaming.version, lambda: _ours("spark_session", str(_HEAP))),
    Engine("bytewax", BYTEWAX[0], _bytewax),
)
