"""Bytewax: two processes, a reader a file, batches decoded by orjson; the queries that its operators say simply."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from environments import environment
from peers.base import NotWritten, ResultForm
from peers.events import Files
from peers.queries import Query
from sessions import Command

BYTEWAX: Final = ("bytewax==0.21.1", "orjson==3.13.0")
_FLOWS: Final = Path(__file__).with_name("bytewax")
_WHY_NOT: Final = (
    "no flow is written for it: Bytewax has no SQL, and this is more than a few of its operators or gives changes"
)


class Bytewax:
    """Python's own streams."""

    name = "bytewax"
    version = BYTEWAX[0]
    form = ResultForm.CHANGES

    def prepare(self) -> Command:
        return Command([str(environment(*BYTEWAX) / "bin/python"), str(_FLOWS / "session.py")])

    def job(self, query: Query, files: Files, into: Path | None) -> Mapping[str, object]:
        if not (_FLOWS / f"{query.name}.py").exists():
            raise NotWritten(_WHY_NOT)
        return {"query": query.name, "files": str(files.dealt), "into": into and str(into)}
