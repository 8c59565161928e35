"""Where the parts of checkpoints and savepoints are, in a job's folder of the checkpoint storage. Spelled here alone.

checkpoints/checkpoint-0000001/metadata                     written last
                               operator-{id}/metadata
                               operator-{id}/table-{name}-{subtask:03}[-compacted]
savepoints/{name}/…                                         the same
"""

from __future__ import annotations

import re
from typing import Final, NewType
from urllib.parse import quote

from penstock.common.ids import Epoch as Epoch
from penstock.common.program import OperatorKey

SnapshotPath = NewType("SnapshotPath", str)
"""The folder of one checkpoint or savepoint."""

CHECKPOINTS: Final = "checkpoints"
SAVEPOINTS: Final = "savepoints"

_CHECKPOINT: Final = re.compile(r"checkpoints/checkpoint-(\d{7,})/")


def checkpoint_path(epoch: Epoch) -> SnapshotPath:
    """The folder of a checkpoint."""
    return SnapshotPath(f"{CHECKPOINTS}/checkpoint-{epoch:07}")


def savepoint_path(name: str) -> SnapshotPath:
    """The folder of a savepoint."""
    return SnapshotPath(f"{SAVEPOINTS}/{_spelled(name)}")


def metadata_path(snapshot: SnapshotPath) -> str:
    """What makes it one: whoever has read this can restore it."""
    return f"{snapshot}/metadata"


def operator_metadata_path(snapshot: SnapshotPath, operator: OperatorKey) -> str:
    return f"{snapshot}/operator-{_spelled(operator)}/metadata"


def table_path(
    snapshot: SnapshotPath, operator: OperatorKey, table: str, subtask: int, *, compacted: bool = False
) -> str:
    """The file that a subtask writes for a table."""
    suffix = "-compacted" if compacted else ""
    return f"{snapshot}/operator-{_spelled(operator)}/table-{_spelled(table)}-{subtask:03}{suffix}"


def epoch_of(path: str) -> Epoch | None:
    """The checkpoint in whose folder a file is; None of one that is in no such folder."""
    found = _CHECKPOINT.match(path)
    return None if found is None else Epoch(int(found[1]))


def _spelled(name: str) -> str:
    """A name as one part of a path, whatever is in it."""
    return quote(name, safe=" ") if name not in {".", ".."} else name.replace(".", "%2E")
