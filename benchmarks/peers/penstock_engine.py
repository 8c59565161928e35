"""Penstock with its default settings: the queries of `benchmarks/nexmark`, into `blackhole`, or into files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from peers.base import ResultForm
from peers.events import Files
from peers.queries import Query
from sessions import Command

_BENCHMARKS: Final = Path(__file__).parents[1]
_TEXTS: Final = _BENCHMARKS / "nexmark"
_KINDS: Final = {"STRING": "TEXT"}


class Penstock:
    """The engine of this project."""

    name = "penstock"
    version = "of this repository"
    form = ResultForm.CHANGES

    def prepare(self) -> Command:
        return Command([sys.executable, "-m", "peers.penstock_session"], {"PYTHONPATH": str(_BENCHMARKS)})

    def job(self, query: Query, files: Files, into: Path | None) -> Mapping[str, object]:
        tables = (_TEXTS / "files.sql").read_text().replace("${folder}", str(files.dealt))
        return {"sql": f"{tables}\n{_sink(query, into)};\n{(_TEXTS / f'{query.name}.sql').read_text()}"}


def _sink(query: Query, into: Path | None) -> str:
    columns = ", ".join(f'"{column.name}" {_KINDS.get(column.kind, column.kind)}' for column in query.columns)
    if into is None:
        return f"CREATE TABLE result ({columns}) WITH (connector = 'blackhole', type = 'sink')"
    encoding = "debezium_json" if query.updates else "json"
    target = f"connector = 'filesystem', path = '{into}', format = '{encoding}'"
    return f"CREATE TABLE result ({columns}) WITH ({target}, type = 'sink')"
