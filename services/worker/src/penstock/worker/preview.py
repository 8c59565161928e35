"""Preview rows on their way to whoever watches the job: lines of JSON, a few megabytes at a time."""

from __future__ import annotations

import asyncio
from typing import Final

import pyarrow as pa

from penstock.connectors.formats.json_encoder import JsonEncoder
from penstock.worker.reports import OutputRows, Reporter
from penstock.worker.wiring import TaskId

_PIECE_BYTES: Final = 1 << 20


class PreviewOutput:
    """Sends the rows of one table's subtask."""

    def __init__(self, reporter: Reporter, table: str, task: TaskId) -> None:
        self._reporter = reporter
        self._table = table
        self._task = task

    async def send(self, batch: pa.RecordBatch) -> None:
        """Returns when there is room for more."""
        encoder = JsonEncoder(batch.schema)
        step = max(1, batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            lines = await asyncio.to_thread(encoder.encode, piece)
            await self._reporter.send_output(OutputRows(self._table, self._task.subtask, piece.num_rows, lines))
