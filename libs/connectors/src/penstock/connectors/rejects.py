"""What becomes of rows that cannot be decoded: the job fails, or they are dropped, or they go to the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.base import DEAD_LETTERS, BadData
from penstock.connectors.errors import BadRow
from penstock.connectors.instants import now_microseconds


@dataclass(frozen=True, slots=True)
class BadPayload:
    """A row that was refused; `position` is where it was: "clicks.json:17"."""

    position: str
    reason: str
    payload: bytes


def dead_letters(table: str, policy: BadData, refused: Sequence[BadPayload]) -> pa.RecordBatch | None:
    """The dead letters of rows that were refused, if the policy wants them; raises BadRow if it wants none refused."""
    if not refused:
        return None
    match policy:
        case BadData.FAIL:
            raise BadRow(table, refused[0].position, refused[0].reason)
        case BadData.DROP:
            return None
        case BadData.DEAD_LETTER:
            now = now_microseconds()
            columns = zip(*((table, bad.position, bad.reason, bad.payload, now) for bad in refused), strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, DEAD_LETTERS, strict=True)]
            return pa.RecordBatch.from_arrays(arrays, schema=DEAD_LETTERS)
