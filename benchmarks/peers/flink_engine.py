"""Flink SQL: two readers, into `blackhole`; into files as Debezium's envelopes where results are compared.

State is on the heap and there are no checkpoints; mini-batches, two-phase aggregation and object reuse are on
(`flink_session.py`). Its heap is as large as that of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from flink import FLINK, flink_command
from peers.base import ResultForm
from peers.events import Files
from peers.queries import Query
from sessions import Command

_TEXTS: Final = Path(__file__).with_name("flink")
_KINDS: Final = {"TIMESTAMP": "TIMESTAMP(3)"}


class FlinkSql:
    """Flink, in its session."""

    name = "flink"
    version = FLINK
    form = ResultForm.CHANGES

    def __init__(self, heap_bytes: int) -> None:
        self._heap_bytes = heap_bytes

    def prepare(self) -> Command:
        return flink_command(heap_bytes=self._heap_bytes)

    def job(self, query: Query, files: Files, into: Path | None) -> Mapping[str, object]:
        return {"statements": list(_statements(query, files, into)), "settings": _settings(into)}


def _settings(into: Path | None) -> Mapping[str, str]:
    """Files are complete with a checkpoint after the end of all sources, which end at different times."""
    if into is None:
        return {}
    checkpoints = into.with_name(f"{into.name}-checkpoints")
    return {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": checkpoints.as_uri(),
    }


def _statements(query: Query, files: Files, into: Path | None) -> Iterator[str]:
    tables = (_TEXTS / "tables.sql").read_text().replace("{files}", files.dealt.as_uri())
    yield from tables.split(";")
    columns = ", ".join(f"`{column.name}` {_KINDS.get(column.kind, column.kind)}" for column in query.columns)
    yield f"CREATE TABLE results ({columns}) WITH ({_sink(query, into)})"
    yield f"INSERT INTO results {(_TEXTS / f'{query.name}.sql').read_text()}"


def _sink(query: Query, into: Path | None) -> str:
    if into is None:
        return "'connector' = 'blackhole'"
    encoding = "debezium-json" if query.updates else "json"
    times = f"'{encoding}.timestamp-format.standard' = 'ISO-8601'"
    return f"'connector' = 'filesystem', 'path' = '{into.as_uri()}', 'format' = '{encoding}', {times}"
