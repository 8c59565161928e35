"""Who this node is, over restarts if it has a folder for that."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from penstock.common.errors import InvalidId, SettingsError
from penstock.common.ids import NodeId

_FILE = "node_id"


@contextmanager
def node_identity(state_dir: str) -> Iterator[NodeId]:
    """The id that the folder holds, or a new one; no other node can have it while the block lasts."""
    if not state_dir:
        yield NodeId.new()
        return
    path = Path(state_dir) / _FILE
    with _locked(path) as file:
        text = file.read().strip()
        if not text:
            text = NodeId.new()
            file.write(text)
            file.flush()
        try:
            node = NodeId(text)
        except InvalidId:
            raise SettingsError(f"{path} holds no node id", hint="remove the file to get a new one") from None
        yield node


def _locked(path: Path) -> TextIO:
    """The file, open and locked until it is closed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot use node.state_dir {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        hint = "give each node a node.state_dir of its own"
        raise SettingsError(f"another node is using {path.parent}", hint=hint) from None
    file.seek(0)
    return file
