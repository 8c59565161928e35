"""The steps by which rows in files become safe and seen. A process may end between any two of them."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_COPY_BYTES: Final = 4 * 1024 * 1024


def sync(file: int) -> None:
    """What was written to a file outlives the machine's end."""
    os.fsync(file)


def sync_folder(path: str) -> None:
    """The names in a folder outlive the machine's end."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def move(path: str, to: str) -> None:
    """Gives a file another name in its folder, all at once."""
    os.rename(path, to)


def remove(path: str) -> None:
    """Removes a file, if another process has not done so."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def truncate(file: int, length: int) -> None:
    """Forgets what is behind a length."""
    os.ftruncate(file, length)


def copy(source: int, target: int, offset: int, length: int) -> int:
    """Writes the beginning of a file into another, from an offset on; returns how much of it there was."""
    copied = 0
    while copied < length and (data := os.pread(source, min(_COPY_BYTES, length - copied), copied)):
        write_at(target, data, offset + copied)
        copied += len(data)
    return copied


def write_at(file: int, data: bytes, offset: int) -> None:
    """Writes at an offset, whatever is there."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written
