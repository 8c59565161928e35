"""What the operating system says about a file, in the words of the project."""

from __future__ import annotations

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
