"""What the flows have in common: a reader a file, decoding by batches with orjson, and sinks.

Runs in Bytewax's own environment, and knows nothing of Penstock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators.windowing import EventClock
from bytewax.outputs import DynamicSink, StatelessSinkPartition

BATCH_LINES = 2000
ALIGNED = datetime(2015, 7, 15, tzinfo=UTC)
# Each key has a clock of its own, and nothing holds back a reader that is ahead of the other: only a delay longer than
# the stream makes no row late. Windows are then complete at the end.
DELAY = timedelta(days=1)

Row = dict[str, Any]
Rows = Callable[[list[Row]], Iterable[Any]]


class _Lines(StatefulSourcePartition[bytes, None]):
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def next_batch(self) -> list[bytes]:
        lines = list(islice(self._file, BATCH_LINES))
        if not lines:
            raise StopIteration
        return lines

    def snapshot(self) -> None:
        return None


class _Files(FixedPartitionedSource[bytes, None]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_parts(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir())

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> _Lines:
        return _Lines(self._folder / for_part)


class _Nothing(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        return


class _Written(StatelessSinkPartition[Any]):
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write_batch(self, items: list[Any]) -> None:
        self._file.writelines(orjson.dumps(item, option=orjson.OPT_APPEND_NEWLINE) for item in items)

    def close(self) -> None:
        self._file.close()


class _Sink(DynamicSink[Any]):
    def __init__(self, into: Path | None) -> None:
        self._into = into

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Any]:
        return _Nothing() if self._into is None else _Written(self._into / f"{worker_index}.json")


def source(flow: Dataflow, files: Path, table: str, rows: Rows) -> Any:
    """The rows of a table that a function makes of each batch."""
    lines = op.input(table, flow, _Files(files / table))
    return op.flat_map_batch(f"decode_{table}", lines, lambda batch: rows(list(map(orjson.loads, batch))))


def sink(stream: Any, into: Path | None) -> None:
    op.output("results", stream, _Sink(into))


def clock(time_of: Callable[[Any], datetime]) -> Any:
    """Event time alone: the clock on the wall does not move a watermark."""
    return EventClock(time_of, DELAY, now_getter=lambda: ALIGNED, to_system_utc=lambda _: None)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def text_of(time: datetime) -> str:
    return time.replace(tzinfo=None).isoformat()
