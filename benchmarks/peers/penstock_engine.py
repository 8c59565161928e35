"""Penstock with its default settings: the queries of `benchmarks/nexmark`, into `blackhole`, or into files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nexmark.queries import file_tables, nexmark_queries
from peers.base import ResultForm
from peers.events import Files
from peers.queries import Query
from sessions import Command

_BENCHMARKS: Final = Path(__file__).parents[1]
_KINDS: Final = {"STRING": "TEXT"}


class Penstock:
    """The engine of this project."""

    name = "penstock"
    version = "of this repository"
    form = ResultForm.CHANGES

    def prepare(self) -> Command:
        return Command([sys.executable, "-m", "peers.penstock_session"], {"PYTHONPATH": str(_BENCHMARKS)})

    def job(self, query: Query, files: Files, into: Path | None) -> Mapping[str, object]:
        (ours,) = (one for one in nexmark_queries() if str(one) == query.name)
        return {"sql": f"{file_tables(files.dealt)}{_sink(query, into)};\n{ours.sql}"}


def _sink(query: Query, into: Path | None) -> str:
    columns = ", ".join(f'"{column.name}" {_KINDS.get(column.kind, column.kind)}' for column in query.columns)
    if into is None:
        return f"CREATE TABLE result ({columns}) WITH (connector = 'blackhole', type = 'sink')"
    encoding = "debezium_json" if query.updates else "json"
    target = f"connector = 'filesystem', path = '{into}', format = '{encoding}'"
    return f"CREATE TABLE result ({columns}) WITH ({target}, type = 'sink')"
