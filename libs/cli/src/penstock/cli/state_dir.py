"""The folder of an embedded cluster: one process at a time has it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.common.errors import SettingsError

_LOCK: Final = "lock"
# Others may pass through it, as Postgres's user must, and not look around.
_MODE: Final = 0o711


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Have a folder for this process alone, made when it is not there; the lock ends with the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(_MODE)
        lock = (folder / _LOCK).open("a+")
    except OSError as error:
        hint = "choose another with --state-dir or embedded.state_dir"
        raise SettingsError(f"cannot use the state folder {folder}: {error.strerror}", hint=hint) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            hint = "stop that one first, or choose another folder with --state-dir"
            raise SettingsError(
                f"another Penstock (process {owner}) is using the state folder {folder}", hint=hint
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield folder


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder that goes with the block."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-run-"))
    folder.chmod(_MODE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
