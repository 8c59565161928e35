"""The folder of an embedded cluster: one process at a time has it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.common.errors import SettingsError

_LOCK: Final = "lock"
# Others may pass through it, as Postgres's user must, and not look around.
_MODE: Final = 0o711
_TEMPORARY: Final = "penstock-run-"
_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 512 * 1024 * 1024


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
def temporary(roots: Sequence[Path] = (_MEMORY,)) -> Iterator[Path]:
    """A folder that goes with the block: in memory where there is room, for Postgres makes a thousand files in it."""
    root = next((root for root in roots if _has_room(root)), None) or Path(tempfile.gettempdir())
    _sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=root))
    try:
        with held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room(root: Path) -> bool:
    try:
        return os.access(root, os.W_OK) and shutil.disk_usage(root).free >= _ROOM
    except OSError:
        return False


def _sweep(root: Path) -> None:
    """Removes what runs left behind that were killed."""
    for folder in root.glob(f"{_TEMPORARY}*"):
        with suppress(OSError, SettingsError):
            if folder.stat().st_uid == os.geteuid() and (folder / _LOCK).exists():
                with held(folder):
                    shutil.rmtree(folder, ignore_errors=True)
