"""What the operating system says about a file, in the words of the project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.connectors.errors import FileError


def file_error(path: str, error: OSError, *, hint: str | None = None) -> FileError:
    """The error for a file that could not be opened, read or written."""
    match error:
        case FileNotFoundError():
            return FileError(path, "no such file", hint=hint or "a path is looked up on the machine of the worker")
        case IsADirectoryError():
            return FileError(path, "is a folder, not a file", hint=hint)
        case PermissionError():
            return FileError(path, "permission denied", hint=hint)
        case _:
            return FileError(path, (error.strerror or str(error)).lower(), hint=hint)


def folder_error(path: str, error: FileNotFoundError) -> FileError:
    """The error for a file that could not be created, because its folder is not there."""
    return file_error(path, error, hint=f"the folder {os.path.dirname(path)} does not exist; create it first")


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """What the operating system raises in here is an error of this file."""
    try:
        yield
    except OSError as error:
        raise file_error(path, error) from error
